"""Stock programs that use ONNX Runtime: a drop-in session, its options, and a hook for every session of a process.

Input: what `onnxruntime.InferenceSession` takes. Output: a session over the compiled model where there is one, stock's
otherwise. Invariant: never in the way; whatever prevents compiling means stock, with one line of log.
"""

from smelt.frontends.session.hook import install, installed, uninstall
from smelt.frontends.session.options import session_options
from smelt.frontends.session.session import InferenceSession

__all__ = ["InferenceSession", "install", "installed", "session_options", "uninstall"]
