"""The build's one addition to pyproject.toml: `smelt_hook.pth` beside the package.

Python runs it at start. It does nothing unless SMELT_HOOK is set: then ONNX Runtime sessions use compiled models.
"""

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

HOOK = Path("src") / "smelt_hook.pth"


class BuildWithHook(build_py):
    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            self.copy_file(str(HOOK), str(Path(self.build_lib) / HOOK.name))

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        outputs = super().get_outputs(include_bytecode)
        return outputs if self.editable_mode else [*outputs, str(Path(self.build_lib) / HOOK.name)]

    def get_source_files(self) -> list[str]:
        return [*super().get_source_files(), str(HOOK)]


setup(cmdclass={"build_py": BuildWithHook})
