# One image for every part of the product: `turnhold worker`, `turnhold api`, `turnhold setup`, …
FROM python:3.11-slim

ENV PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1

# The keys file and the store live in these; a new volume mounted there takes over its owner.
RUN useradd --uid 10001 --create-home turnhold \
    && install -d -o turnhold -g turnhold -m 0700 /var/lib/turnhold /var/lib/turnhold-store

WORKDIR /app

# Editable, since the applications beside the package are run from their sources and are not part
# of the wheel. Before the sources, so that a change of these leaves the dependencies in the cache.
COPY pyproject.toml README.md LICENSE ./
RUN pip install -e .

COPY . .
# The workflow's modules are loaded for every Session: never from their sources again.
RUN python -m compileall -q turnhold workflows activities api worker.py

USER turnhold
EXPOSE 8080

# A list, no shell: the process itself gets SIGTERM.
ENTRYPOINT ["turnhold"]
CMD ["api"]
