"""One bucket, version by version. Knows S3 and nothing of sandboxes."""

from __future__ import annotations

import hashlib
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Dict, Iterator, List, Optional, Tuple
from urllib.parse import urlencode, urlsplit

from botocore.exceptions import BotoCoreError, ClientError

from sandboxer_plugin import Failed, NotFound, Unavailable, Usage

_ABSENT = {"NoSuchKey", "NoSuchVersion", "NoSuchBucket", "404"}
_CARRIED = ("ContentType", "ContentEncoding", "ContentDisposition", "ContentLanguage", "CacheControl", "Metadata")
_PIECE = 1 << 20


def parse_url(url: str) -> Tuple[str, str]:
    """The bucket and the prefix that `s3://bucket/prefix` names; the prefix is empty or ends in a slash."""
    parts = urlsplit(url)
    if parts.scheme != "s3" or not parts.netloc or "@" in parts.netloc or parts.query or parts.fragment:
        raise Usage("a bucket is named as s3://BUCKET or s3://BUCKET/PREFIX")
    prefix = parts.path.strip("/")
    return parts.netloc, prefix + "/" if prefix else ""


@dataclass(frozen=True)
class History:
    """What there is and was under one key."""

    latest: Optional[str]
    """The newest version's id, be it an object or a delete marker."""
    current: Optional[str]
    """The id of the object that readers get, if they get one."""
    etags: Dict[str, Optional[str]]
    """Every version's id; `None` is a delete marker's ETag."""


class Bucket:
    """A bucket seen through a boto3 client."""

    def __init__(self, client: Any, name: str) -> None:
        self.client, self.name = client, name

    def is_versioned(self) -> bool:
        """Whether every overwritten version is kept. Suspended is not enough."""
        with told(f"versioning of bucket {self.name}"):
            return self.client.get_bucket_versioning(Bucket=self.name).get("Status") == "Enabled"

    def snapshot(self, prefix: str) -> Iterator[Tuple[str, Dict[str, Any]]]:
        """Every key below `prefix` that has an object now, with the object's version and size."""
        for versions, _ in self._pages(prefix):
            for version in versions:
                if version["IsLatest"]:
                    yield version["Key"], {"version": version["VersionId"], "size": version["Size"]}

    def history(self, key: str) -> History:
        """All versions of one key."""
        latest, current, etags = None, None, {}
        for versions, markers in self._pages(key):
            # Keys come in order: one that is longer ends the list of this one.
            own = [v for v in versions + markers if v["Key"] == key]
            etags.update((v["VersionId"], v.get("ETag")) for v in own)
            latest = next((v["VersionId"] for v in own if v["IsLatest"]), latest)
            current = next((v["VersionId"] for v in own if v["IsLatest"] and "ETag" in v), current)
            if len(own) < len(versions) + len(markers):
                break
        return History(latest, current, etags)

    def get(self, key: str, version: Optional[str], part: Optional[Tuple[int, int]] = None) -> bytes:
        """The content of one version, or the bytes of it from an offset on; past the end there are none."""
        asked = _version(version)
        if part is not None:
            offset, length = part
            if length <= 0:
                return b""
            asked["Range"] = f"bytes={offset}-{offset + length - 1}"
        with told(key):
            try:
                return self.client.get_object(Bucket=self.name, Key=key, **asked)["Body"].read()
            except ClientError as error:
                if _code(error) == "InvalidRange":
                    return b""
                raise

    def digest(self, key: str, version: Optional[str]) -> str:
        """The digest of one version's content, however large."""
        hasher = hashlib.sha256()
        with told(key):
            body = self.client.get_object(Bucket=self.name, Key=key, **_version(version))["Body"]
            for piece in body.iter_chunks(_PIECE):
                hasher.update(piece)
        return "sha256:" + hasher.hexdigest()

    def attributes(self, key: str, version: Optional[str]) -> Dict[str, Any]:
        """What `put` needs so that a new object is like that one in everything but its content."""
        with told(key):
            head = self.client.head_object(Bucket=self.name, Key=key, **_version(version))
            found = {name: head[name] for name in _CARRIED if name in head}
            if head.get("TagCount"):
                tags = self.client.get_object_tagging(Bucket=self.name, Key=key, **_version(version))["TagSet"]
                found["Tagging"] = urlencode({tag["Key"]: tag["Value"] for tag in tags})
        return found

    def put(self, key: str, content: bytes, **attributes: Any) -> Tuple[Optional[str], str]:
        """Makes an object; its version (`None` in a bucket without versions) and ETag."""
        with told(key):
            made = self.client.put_object(Bucket=self.name, Key=key, Body=content, **attributes)
        return made.get("VersionId"), made["ETag"]

    def copy(self, source: Dict[str, Any], key: str) -> str:
        """Copies `source` to `key` within the service; the new version's id."""
        origin = {"Bucket": source["bucket"], "Key": source["key"], **_version(source["version"])}
        with told(key):
            return self.client.copy_object(Bucket=self.name, Key=key, CopySource=origin)["VersionId"]

    def hide(self, key: str) -> str:
        """Deletes the object as users do: a delete marker becomes the newest version. Its id."""
        with told(key):
            return self.client.delete_object(Bucket=self.name, Key=key)["VersionId"]

    def remove(self, key: str, version: Optional[str]) -> None:
        """Removes one version for good; the one before it is the newest again."""
        with told(key):
            self.client.delete_object(Bucket=self.name, Key=key, **_version(version))

    def purge(self, prefix: str) -> None:
        """Removes every version of every key below `prefix`."""
        for versions, markers in self._pages(prefix):
            doomed = [{"Key": v["Key"], "VersionId": v["VersionId"]} for v in versions + markers]
            if doomed:
                with told(prefix):
                    answer = self.client.delete_objects(Bucket=self.name, Delete={"Objects": doomed, "Quiet": True})
                if answer.get("Errors"):
                    raise Failed(f"cannot remove {answer['Errors'][0]['Key']}: {answer['Errors'][0]['Message']}")

    def _pages(self, prefix: str) -> Iterator[Tuple[List[Dict[str, Any]], List[Dict[str, Any]]]]:
        """Versions and delete markers, page by page."""
        with told(f"{self.name}/{prefix}"):
            pages = self.client.get_paginator("list_object_versions")
            for page in pages.paginate(Bucket=self.name, Prefix=prefix):
                yield page.get("Versions", []), page.get("DeleteMarkers", [])


@contextmanager
def told(what: str) -> Iterator[None]:
    """Turns boto's errors into those of the protocol. They name the operation and never a credential."""
    try:
        yield
    except ClientError as error:
        if _code(error) in _ABSENT:
            raise NotFound("object", what) from None
        raise Failed(f"{what}: {error}") from None
    except BotoCoreError as error:
        raise Unavailable(f"{what}: {error}") from None


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code"))


def _version(version: Optional[str]) -> Dict[str, str]:
    return {} if version is None else {"VersionId": version}
