# The worker, with the command `replan` inside: `docker compose build`. Nothing secret goes into it.
# Every package is one of requirements/*.txt, checked by its hash, those that build packages too.

FROM python:3.11.14-slim-bookworm AS packages
WORKDIR /app
# What builds packages stays in an environment of its own, and so does pip.
RUN python -m venv /opt/build
COPY requirements/build.txt requirements/runtime.txt requirements/
RUN /opt/build/bin/pip install --no-deps --require-hashes -r requirements/build.txt
RUN /opt/build/bin/pip wheel --no-deps --require-hashes --no-build-isolation --wheel-dir /opt/wheels -r requirements/runtime.txt
COPY worker.py starter.py pyproject.toml README.md LICENSE ./
COPY replan replan
COPY workflows workflows
COPY activities activities
COPY runtime runtime
COPY client client
COPY console console
COPY extras extras
COPY examples examples
COPY lab/maintenance lab/maintenance
RUN /opt/build/bin/pip wheel --no-deps --no-build-isolation --wheel-dir /opt/wheels .
RUN python -m venv --without-pip /opt/replan
RUN /opt/build/bin/pip --python /opt/replan/bin/python install --no-deps --no-index --no-compile /opt/wheels/*.whl
RUN /opt/replan/bin/python lab/maintenance/slim.py

FROM python:3.11.14-slim-bookworm
# Numbers of our own, so that files in the volume keep their owner; no skeleton, which would come into the volume.
RUN groupadd --gid 10001 replan \
	&& useradd --uid 10001 --gid replan --home-dir /var/lib/replan --no-create-home --no-log-init replan \
	&& install --directory --owner=replan --group=replan --mode=0750 /var/lib/replan
ENV PATH=/opt/replan/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 REPLAN_STATE=/var/lib/replan
WORKDIR /app
COPY --from=packages /opt/replan /opt/replan
COPY examples/documents examples/documents
USER replan
ENTRYPOINT ["replan", "worker"]
