"""What the tests of the bucket strategy share: a real S3 server (moto, on loopback) and a bucket for each test."""

from __future__ import annotations

import logging
import os
import sys
import unittest
import uuid
from pathlib import Path
from typing import Any, Dict, Optional
from unittest import mock

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[2] / "python")]

try:
    import boto3
    from moto.server import ThreadedMotoServer
except ImportError as error:
    raise unittest.SkipTest(f"{error.name} is not installed (pip install -r {HERE / 'requirements.txt'})") from None

from s3_bucket import BucketStrategy  # noqa: E402
from sandboxer_plugin import CommitRequest, Resource, SandboxRef  # noqa: E402

# Nobody's own credentials or settings, and no call to a metadata service.
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "AKIAEXAMPLE", "AWS_SECRET_ACCESS_KEY": "a-secret-nobody-may-see",
    "AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull, "AWS_EC2_METADATA_DISABLED": "true",
    "no_proxy": "127.0.0.1",
}
REGION = "us-east-1"


class BucketCase(unittest.TestCase):
    """A bucket with `a.txt`, `dir/b.txt` and `blob.bin`, and a client that stands for everybody else."""

    versioned = True

    @classmethod
    def setUpClass(cls) -> None:
        logging.getLogger("werkzeug").setLevel(logging.CRITICAL)
        own = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        cls.environment = mock.patch.dict(os.environ, {**own, **ENVIRONMENT}, clear=True)
        cls.environment.start()
        cls.server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        cls.server.start()
        host, port = cls.server.get_host_and_port()
        cls.endpoint = f"http://{host}:{port}"
        cls.s3 = boto3.client("s3", endpoint_url=cls.endpoint, region_name=REGION)

    @classmethod
    def tearDownClass(cls) -> None:
        cls.server.stop()
        cls.environment.stop()

    def setUp(self) -> None:
        self.bucket = self.new_bucket(self.versioned)
        self.put("a.txt", b"one\ntwo\n", ContentType="text/plain", Metadata={"owner": "ops"}, Tagging="keep=yes")
        self.put("dir/b.txt", b"b\n")
        self.put("blob.bin", b"\0\1\2")
        self.strategy = self.new_strategy()

    def new_bucket(self, versioned: bool = True) -> str:
        name = "bucket-" + uuid.uuid4().hex
        self.s3.create_bucket(Bucket=name)
        if versioned:
            self.s3.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Enabled"})
        return name

    def new_strategy(self, **options: Any) -> BucketStrategy:
        return BucketStrategy(**{"endpoint": self.endpoint, "region": REGION, **options})

    def create(self, prefix: str = "", plan: str = "pln_1", strategy: Optional[BucketStrategy] = None) -> SandboxRef:
        location = f"s3://{self.bucket}/{prefix}".rstrip("/")
        return (strategy or self.strategy).create(plan, Resource("url:" + location, "s3-bucket", location))

    def commit(self, ref: SandboxRef, *paths: str, **metadata: str) -> Any:
        ref = SandboxRef(ref.plan_id, ref.resource_id, metadata={**ref.metadata, **metadata})
        return self.strategy.commit(ref, CommitRequest(paths=list(paths)))

    def with_metadata(self, ref: SandboxRef, **metadata: Any) -> SandboxRef:
        return SandboxRef(ref.plan_id, ref.resource_id, metadata={**ref.metadata, **metadata})

    def put(self, key: str, content: bytes, **attributes: Any) -> str:
        return self.s3.put_object(Bucket=self.bucket, Key=key, Body=content, **attributes).get("VersionId")

    def content(self) -> Dict[str, bytes]:
        """What every other reader of the bucket gets, the staging area aside."""
        found = self.s3.list_objects_v2(Bucket=self.bucket).get("Contents", [])
        keys = [item["Key"] for item in found if not item["Key"].startswith(".sandboxer/")]
        return {key: self.s3.get_object(Bucket=self.bucket, Key=key)["Body"].read() for key in keys}

    def versions(self, bucket: Optional[str] = None) -> Any:
        """Every version and delete marker there is, in any area."""
        page = self.s3.list_object_versions(Bucket=bucket or self.bucket)
        return sorted((v["Key"], v["VersionId"]) for v in page.get("Versions", []) + page.get("DeleteMarkers", []))

    def differences(self, ref: SandboxRef) -> Any:
        return {entry.path: entry.kind for entry in self.strategy.diff(ref).entries}

    def on(self, call: str, action: Any) -> None:
        """Runs `action` before the strategy's calls of that name reach the server."""
        def act(**_: Any) -> None:
            # Without an answer of its own, or that would be taken for the server's.
            action()
        self.strategy._client.meta.events.register(f"before-call.s3.{call}", act)
