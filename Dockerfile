# The worker, with the command `replan` inside: `docker compose build`. Nothing secret goes into it.
# Every package is one of requirements/*.txt, checked by its hash, those that build packages too.

FROM python:3.11.14-slim-bookworm AS packages
WORKDIR /app
RUN python -m venv /opt/replan
COPY requirements/build.txt requirements/runtime.txt requirements/
RUN /opt/replan/bin/pip install --no-deps --require-hashes -r requirements/build.txt
RUN /opt/replan/bin/pip install --no-deps --require-hashes --no-build-isolation -r requirements/runtime.txt
COPY worker.py starter.py pyproject.toml README.md LICENSE ./
COPY replan replan
COPY workflows workflows
COPY activities activities
COPY runtime runtime
COPY client client
COPY server server
COPY console console
COPY audit audit
COPY examples examples
COPY maintenance maintenance
RUN /opt/replan/bin/pip install --no-deps --no-build-isolation .

FROM python:3.11.14-slim-bookworm
RUN useradd --system --uid 10001 --home-dir /var/lib/replan --create-home replan
ENV PATH=/opt/replan/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 REPLAN_STATE=/var/lib/replan
WORKDIR /app
COPY --from=packages /opt/replan /opt/replan
COPY examples/documents examples/documents
USER replan
ENTRYPOINT ["replan", "worker"]
