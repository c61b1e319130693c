"""Payloads in S3 instead of the store: `worker.py --payloads s3://BUCKET`."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from temporalio.contrib.aws.s3driver import S3StorageDriver
from temporalio.converter import StorageDriver

from runtime.settings import BadSetting

INSTALL = 'pip install "temporalio[aioboto3]"'


@asynccontextmanager
async def s3(url: str) -> AsyncIterator[StorageDriver]:
    """The SDK's driver on a bucket; region and credentials as AWS's own tools read them.

    Raises:
        BadSetting: the URL names no bucket, or the packages are missing.
    """
    parts = urlsplit(url)
    if parts.scheme != "s3" or not parts.netloc or parts.path.strip("/"):
        raise BadSetting(f"--payloads {url!r} names no bucket: write s3://BUCKET.")
    try:
        import aioboto3
        from temporalio.contrib.aws.s3driver.aioboto3 import new_aioboto3_client
    except ImportError as error:
        raise BadSetting(f"--payloads needs {error.name}: {INSTALL}.") from error
    async with aioboto3.Session().client("s3") as client:
        yield S3StorageDriver(new_aioboto3_client(client), parts.netloc)
