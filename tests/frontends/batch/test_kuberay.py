"""The Kubernetes example against the part of KubeRay's RayJob schema (ray.io/v1) that it uses."""

from __future__ import annotations

import copy
import shlex
from pathlib import Path
from typing import Any

import pytest

yaml = pytest.importorskip("yaml")

FILE = Path(__file__).parents[3] / "examples" / "kuberay" / "rayjob.yaml"
TEXTS = {"type": "object", "additional": {"type": "string"}}
AMOUNTS = {"type": "object", "known": {"cpu": {"type": "string"}, "memory": {"type": "string"}}}
MOUNT = {
    "type": "object",
    "required": ["name", "mountPath"],
    "known": {"name": {"type": "string"}, "mountPath": {"type": "string"}},
}
CONTAINER = {
    "type": "object",
    "required": ["name"],
    "known": {
        "name": {"type": "string"},
        "image": {"type": "string"},
        "resources": {"type": "object", "known": {"requests": AMOUNTS, "limits": AMOUNTS}},
        "volumeMounts": {"type": "array", "items": MOUNT},
    },
}
CLAIM = {"type": "object", "required": ["claimName"], "known": {"claimName": {"type": "string"}}}
VOLUME = {
    "type": "object",
    "required": ["name"],
    "known": {"name": {"type": "string"}, "persistentVolumeClaim": CLAIM, "emptyDir": {"type": "object", "known": {}}},
}
POD = {
    "type": "object",
    "required": ["containers"],
    "known": {"containers": {"type": "array", "items": CONTAINER}, "volumes": {"type": "array", "items": VOLUME}},
}
TEMPLATE = {"type": "object", "known": {"spec": POD}}
WORKERS = {
    "type": "object",
    "required": ["groupName", "maxReplicas", "minReplicas", "template"],
    "known": {
        "groupName": {"type": "string"},
        **{name: {"type": "integer"} for name in ("replicas", "minReplicas", "maxReplicas")},
        "rayStartParams": TEXTS,
        "template": TEMPLATE,
    },
}
CLUSTER = {
    "type": "object",
    "required": ["headGroupSpec"],
    "known": {
        "rayVersion": {"type": "string"},
        "headGroupSpec": {
            "type": "object",
            "required": ["template"],
            "known": {"rayStartParams": TEXTS, "template": TEMPLATE},
        },
        "workerGroupSpecs": {"type": "array", "items": WORKERS},
    },
}
SPEC = {
    "type": "object",
    "known": {
        "entrypoint": {"type": "string"},
        "shutdownAfterJobFinishes": {"type": "boolean"},
        "ttlSecondsAfterFinished": {"type": "integer"},
        "backoffLimit": {"type": "integer"},
        "submissionMode": {"type": "string", "enum": ["K8sJobMode", "HTTPMode", "InteractiveMode", "SidecarMode"]},
        "rayClusterSpec": CLUSTER,
    },
}
RAYJOB = {
    "type": "object",
    "required": ["apiVersion", "kind", "metadata", "spec"],
    "known": {
        "apiVersion": {"type": "string", "enum": ["ray.io/v1"]},
        "kind": {"type": "string", "enum": ["RayJob"]},
        "metadata": {"type": "object", "required": ["name"], "known": {"name": {"type": "string"}}},
        "spec": SPEC,
    },
}
KINDS = {"string": str, "integer": int, "boolean": bool, "array": list, "object": dict}


def faults(content: Any, schema: dict[str, Any], place: str = "") -> list[str]:
    if not isinstance(content, KINDS[schema["type"]]) or (schema["type"] == "integer" and isinstance(content, bool)):
        return [f"{place}: no {schema['type']}"]
    found = [f"{place}: {content!r}"] if "enum" in schema and content not in schema["enum"] else []
    if schema["type"] == "array":
        return found + [
            fault for i, one in enumerate(content) for fault in faults(one, schema["items"], f"{place}[{i}]")
        ]
    if schema["type"] != "object":
        return found
    found += [f"{place}: no {name}" for name in schema.get("required", ()) if name not in content]
    for name, one in content.items():
        below = schema.get("known", {}).get(name, schema.get("additional"))
        found += [f"{place}.{name}: unknown"] if below is None else faults(one, below, f"{place}.{name}")
    return found


def test_the_example_fits_the_schema():
    assert faults(yaml.safe_load(FILE.read_text()), RAYJOB) == []


def test_the_check_finds_what_is_wrong():
    wrong = copy.deepcopy(yaml.safe_load(FILE.read_text()))
    wrong["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]["replicas"] = "16"
    del wrong["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]
    wrong["spec"]["entryPoint"] = "x"
    assert len(faults(wrong, RAYJOB)) == 3


def test_the_example_s_command_is_one_that_the_command_line_takes():
    import typer.main

    from smelt.cli.app import make_app

    words = shlex.split(yaml.safe_load(FILE.read_text())["spec"]["entrypoint"])
    assert words[:2] == ["smelt", "batch"]
    commands: Any = typer.main.get_command(make_app())
    batch = commands.commands["batch"]
    context = batch.make_context("batch", words[2:])
    assert context.params["ray"] == "auto" and context.params["inputs"] == ["/data/in/*.parquet"]
