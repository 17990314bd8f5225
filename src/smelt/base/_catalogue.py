"""The text of the error catalogue.

Input: nothing. Output: `ENTRIES`, code -> (title, explanation, fix). Invariant: a code is never reused for
another meaning, and its number never changes.
"""

from __future__ import annotations

from typing import Final

ENTRIES: Final[dict[str, tuple[str, str, str]]] = {
    "SM-CONFIG-001": (
        "A knob has a value that cannot be read",
        "An environment variable or option holds text that is not a number, a boolean or one of its named choices.",
        "Unset the variable or give it one of the values named in the message.",
    ),
    "SM-CONFIG-002": (
        "Unknown target or CPU level",
        "A target is an architecture (x86-64, aarch64), or one of its builds (v2, v3, v4, armv8, armv82, or one with "
        "further CPU features).",
        "Use one of the names in the message.",
    ),
    "SM-CONFIG-003": (
        "Unknown error code",
        "The code asked for is not in this catalogue.",
        "Check the spelling; codes look like SM-LOAD-001.",
    ),
    "SM-CONFIG-004": (
        "Targets of several architectures in one library",
        "One shared library holds code for one architecture, in several CPU levels of it.",
        "Compile once per architecture.",
    ),
    "SM-CONFIG-005": (
        "Unknown option",
        "A keyword of `compile` is not a field of `smelt.Options`.",
        "Use one of the names in the message.",
    ),
    "SM-CONFIG-006": (
        "Unknown device",
        "The ONNX backend interface was asked for a device that smelt makes no kernels for.",
        "Use the device CPU.",
    ),
    "SM-CONFIG-007": (
        "An option has a value of the wrong kind",
        "An option of `torch.compile(backend='smelt')` was given a value that it cannot be.",
        "Give it a value of the kind named in the message.",
    ),
    "SM-CONFIG-008": (
        "Bounds cannot be checked here",
        "SMELT_BOUNDS=1 builds libraries with gcc's AddressSanitizer, whose run-time library must be loaded first.",
        "Use gcc, and set LD_PRELOAD as the message says; the command line `smelt` does so by itself.",
    ),
    "SM-DEVICE-001": (
        "No such execution provider or device index",
        "A device index stands for an execution provider that the installed onnxruntime must have.",
        "Use a provider and an index that the message names.",
    ),
    "SM-DEVICE-002": (
        "A device index that was never set up",
        "Only `ort:0` exists by itself; every other index is given an execution provider first.",
        "Call smelt.eager.set_device(index, provider).",
    ),
    "SM-DEVICE-003": (
        "A custom op that cannot be defined",
        "The name, the ONNX op or the torch schema of a custom op cannot be used.",
        "Correct what the message names.",
    ),
    "SM-KERNEL-001": (
        "The text of a kernel cannot be used",
        "A kernel of your own is C, a function of elements, of a row or of tensors, or Triton. This text cannot be "
        "read as such, or does not compile.",
        'Look at the line that the message names; the page "Your own kernels" has what each form may hold.',
    ),
    "SM-KERNEL-002": (
        "A kernel cannot be registered",
        "Its name, its domain or its parameters do not fit, or the op has a kernel already.",
        "Use a domain of your own, and the same parameter names in C and in the reference.",
    ),
    "SM-KERNEL-003": (
        "A kernel of yours cannot run in this model",
        "Stock ONNX Runtime has no kernel for the op to fall back to, and yours failed: it does not compile, differs "
        "from its reference, or cannot take these operands.",
        "The message has the reason; nothing was written.",
    ),
    "SM-KERNEL-004": (
        "A Python function of a kernel failed",
        "The reference or the shape rule raised an exception, or gave other results than the C function has.",
        "Call it with numpy arrays of the model's shapes and see what it says.",
    ),
    "SM-KERNEL-005": (
        "A package for kernels of your own is missing",
        "The C of elements and rows is read by pycparser; cloudpickle carries references to the verifying process.",
        'Install them: pip install "onnx-smelt[kernels]".',
    ),
    "SM-LOAD-001": (
        "The model file cannot be read",
        "The path is missing, is not a regular file, or may not be read by this user.",
        "Check the path and its permissions.",
    ),
    "SM-LOAD-002": (
        "Not an ONNX model",
        "The bytes are not a ModelProto: the file is empty, truncated, or of another kind.",
        "Export or download the model again; `python -m onnx.checker` reads a good one.",
    ),
    "SM-LOAD-003": (
        "External data is refused",
        "A tensor's external data must be a plain file below the model's own folder: no absolute path, no `..`, no "
        "backslash, no hard link, no device. Symbolic links may lead to such a file, or to a blob of the Hugging Face "
        "cache that the model lies in.",
        "Save the model again with its data beside it, e.g. onnx.save(model, path, save_as_external_data=True).",
    ),
    "SM-LOAD-004": (
        "External data is missing or too short",
        "A tensor names an offset and a length that its file does not hold.",
        "Copy the data file that belongs to this model, complete, beside it.",
    ),
    "SM-LOAD-005": (
        "A size limit was hit",
        "The model asks for more memory or work than any sound model does: a length bomb, or functions that expand "
        "exponentially.",
        "Check where the model comes from.",
    ),
    "SM-LOAD-006": (
        "Opset or IR version out of range",
        "The model declares an opset or IR version that no supported ONNX Runtime runs.",
        "Convert it with onnx.version_converter, or export it again.",
    ),
    "SM-LOAD-007": (
        "A sparse tensor that cannot be made dense",
        "A sparse constant is made dense when a model is loaded, unless that would take more than a gigabyte; a sparse "
        "attribute of another op than Constant is not read. What stock ONNX Runtime loads goes through as it is.",
        "Store the tensor dense.",
    ),
    "SM-LOAD-008": (
        "Not a kind of model that can be compiled",
        "An ONNX model is a path, bytes, an onnx.ModelProto or an onnx_ir.Model.",
        "Export the model to ONNX first.",
    ),
    "SM-LOAD-009": (
        "A language model's folder is incomplete",
        "A folder of onnxruntime-genai has genai_config.json, a decoder and a tokenizer; one of Hugging Face has "
        "config.json, safetensors and a tokenizer. Files are named relative to the folder and lie in it.",
        "Copy the whole folder; the message names what is missing.",
    ),
    "SM-LOAD-010": (
        "A language model cannot be built",
        "onnxruntime-genai's model builder knows no such architecture, or failed on these weights.",
        "Read its own words in the message; export the model to ONNX and compile that.",
    ),
    "SM-LOAD-011": (
        "A package for language models is missing",
        "onnxruntime-genai, with torch and transformers, builds decoders from Hugging Face folders.",
        'Install them: pip install "onnx-smelt[genai]".',
    ),
    "SM-MODEL-001": (
        "The graph is not in single-assignment form",
        "A value has two producers, or one value is both produced and a graph input.",
        "Run onnx.checker on the model and export it again.",
    ),
    "SM-MODEL-002": (
        "A value is used but never defined",
        "A node reads a name that no node, input or initializer defines.",
        "Run onnx.checker on the model and export it again.",
    ),
    "SM-MODEL-003": (
        "The graph has a cycle",
        "Nodes depend on each other in a circle, so no order runs them.",
        "Export the model again.",
    ),
    "SM-MODEL-004": (
        "A shape is not valid",
        "A dimension is negative, the number of elements overflows, or a tensor's data does not fit its shape.",
        "Export the model again, or mend the tensor named in the message.",
    ),
    "SM-MODEL-005": (
        "Two shapes do not fit",
        "The operands of a node cannot be broadcast or do not agree in the dimensions that must match.",
        "Compare the shapes in the message with the operator's definition.",
    ),
    "SM-MODEL-006": (
        "An attribute or constant input is out of range",
        "An axis, index, permutation or split does not fit the rank or size of its tensor.",
        "Compare the value in the message with the operator's definition.",
    ),
    "SM-MODEL-007": (
        "The model's structure cannot be read",
        "The file is a ModelProto, but a field in it has no meaning: a bad enum, a missing name, a broken reference.",
        "Run onnx.checker on the model and export it again.",
    ),
    "SM-MODEL-008": (
        "ONNX Runtime refuses the model",
        "The model was compiled, but no session can be made of it: an operator, domain, type or opset that this ONNX "
        "Runtime does not know, or shapes that contradict each other. Its own words are in the message.",
        "Load the original model with onnxruntime: it fails there too. Mend or convert the model, or install the "
        "release that has the operator.",
    ),
    "SM-MODEL-009": (
        "A node does not fit its operator",
        "The number or the declared types of its inputs or outputs, or the kind of an attribute, is not what the "
        "operator's definition in the declared opset asks for.",
        "Compare the node with the operator's definition; check the opset that the model declares.",
    ),
    "SM-MODEL-010": (
        "Weights cannot be taken away or put back",
        "The model is light already, or is not, or its record of the weights that it had does not fit; or the original "
        "that was given holds other tensors than those that were taken away.",
        "Run `smelt lighten` on a model with weights, and `smelt unlighten` on what it wrote; with `--from`, give the "
        "very file that was lightened.",
    ),
    "SM-PASS-001": (
        "A dimension cannot be bound",
        "The name is not a symbolic dimension of any input, or the size is negative or not a whole number.",
        "Use one of the names in the message, with a size of 0 or more.",
    ),
    "SM-PASS-002": (
        "Unknown pass",
        "A pass, rule or set was selected by a name that the table of passes does not hold.",
        "Use one of the names in the message; `smelt optimize --list-patterns` prints all.",
    ),
    "SM-PASS-003": (
        "A rule gives another kind of value than it replaces",
        "A rewrite rule returned another number of values, or values of another type, than the node it was applied to.",
        "Correct the rule, or leave it out of the selector.",
    ),
    "SM-PASS-004": (
        "A rule that cannot be used",
        "What was given is no rule, or its name is taken or is not of small letters, digits and hyphens.",
        "Make rules with smelt.patterns.rule, or give those of onnxscript.rewriter; choose another name.",
    ),
    "SM-PASS-005": (
        "A pass failed",
        "An optimization raised an exception, which is a fault of smelt. `smelt compile` goes on without that pass.",
        "Leave the pass out with --skip-pass, and report the model.",
    ),
    "SM-PLAN-001": (
        "A plan does not fit its model",
        "A region names nodes that the model does not hold any more.",
        "Make a new plan after the last change of the model.",
    ),
    "SM-EXPORT-001": (
        "PyTorch ops that ONNX cannot say",
        "Neither the exporter's table, onnxscript's torchlib nor torch's decompositions convert these calls.",
        "Write a converter (`smelt.register_converter`), change the model, or use torch.compile, which leaves such ops "
        "in torch.",
    ),
    "SM-EXPORT-002": (
        "A PyTorch call that torch itself refuses",
        "A program of a single op was asked for with arguments that the op does not take.",
        "Check shapes and dtypes of the arguments; the message is torch's own.",
    ),
    "SM-EXPORT-003": (
        "torch.export cannot capture the module",
        "The program has control flow that depends on data, or uses what torch.export does not trace.",
        "Follow torch's message; `torch.cond` says data-dependent branches, and torch.compile needs no whole graph.",
    ),
    "SM-EXPORT-004": (
        "What is to be exported cannot be loaded",
        "`smelt export` takes a Hugging Face folder (config.json and weights) or MODULE:ATTRIBUTE, a torch module or a "
        "function without arguments that gives one; and inputs to trace it with.",
        "Do as the message says.",
    ),
    "SM-CODEGEN-001": (
        "A region has no kernel",
        "A code generator claimed a node that it cannot express.",
        "Exclude the node with --exclude, and report the model.",
    ),
    "SM-CODEGEN-002": (
        "A unit has a bad name",
        "A unit becomes a file of that name, so only letters, digits and underscores are taken.",
        "This is a fault of a code generator: report it.",
    ),
    "SM-CODEGEN-003": (
        "A value is read before it is complete",
        "The order of a region's loops is wrong: a load would see memory that is not written yet.",
        "This is a fault of the scheduler: report the model; --exclude the node meanwhile.",
    ),
    "SM-TOOL-001": (
        "No C compiler",
        "Neither SMELT_CC, CC, cc, gcc, clang nor the ziglang package was found. The model runs on stock ONNX Runtime.",
        "Install one: `pip install ziglang` needs no root; or set SMELT_CC.",
    ),
    "SM-TOOL-002": (
        "The compiler that was named cannot be used",
        "SMELT_CC or CC names a program that is missing, does not start, or is not gcc, clang or zig.",
        "Correct or unset the variable.",
    ),
    "SM-TOOL-003": (
        "No compiler for this target",
        "The compiler at hand makes code for this machine only.",
        "Cross-compile with zig: `pip install ziglang`, or SMELT_CC=zig.",
    ),
    "SM-TOOL-004": (
        "The compiler failed",
        "It ended with an error on generated code. Its own words are in the message.",
        "Try another compiler with SMELT_CC; report the message if SMELT_CFLAGS is unset.",
    ),
    "SM-TOOL-005": (
        "The compiler took too long",
        "It was stopped at the time limit.",
        "Raise SMELT_COMPILE_TIMEOUT (seconds), or try another compiler with SMELT_CC.",
    ),
    "SM-TOOL-006": (
        "The library has no exported entry",
        "The linked library does not export the function that ONNX Runtime looks up.",
        "Remove flags from SMELT_CFLAGS that change visibility.",
    ),
    "SM-CACHE-001": (
        "The cache folder belongs to another user",
        "Libraries are loaded from the cache, so its folder must belong to the user who runs smelt.",
        "Set SMELT_CACHE_DIR to a folder of your own.",
    ),
    "SM-CACHE-002": (
        "The cache folder can be written by others",
        "Who can write the cache can make this process run any code.",
        "Run the chmod in the message.",
    ),
    "SM-CACHE-003": (
        "The cache folder cannot be used",
        "It cannot be created or written: no permission, no space, a read-only file system, or a file is in its place.",
        "Set SMELT_CACHE_DIR to a folder that can be written.",
    ),
    "SM-CACHE-004": (
        "Waiting for another process took too long",
        "Another process holds the lock of the same library and did not finish.",
        "Look for a hung compiler; the lock is released when its process ends.",
    ),
    "SM-CACHE-005": (
        "No such cache entry",
        "No entry, or more than one, has a key that starts as given.",
        "`smelt cache ls` lists the keys.",
    ),
    "SM-ARTIFACT-001": (
        "The artifact is incomplete",
        "A folder with model.onnx, manifest.json and the library that the manifest names is expected.",
        "Compile the model again, or copy the whole folder.",
    ),
    "SM-ARTIFACT-002": (
        "The artifact was altered",
        "The library's digest is not the one in the manifest, so it is not loaded.",
        "Copy the folder again from its source, or compile again.",
    ),
    "SM-ARTIFACT-003": (
        "The artifact's folder is not safe",
        "Others can write the folder, so the library in it is not loaded.",
        "chmod go-w the folder and its files.",
    ),
    "SM-ARTIFACT-004": (
        "The output folder holds something else",
        "A folder is written as a whole, so only an artifact or an empty folder is replaced.",
        "Name a new folder, or remove the old one.",
    ),
    "SM-ARTIFACT-005": (
        "The artifact cannot be written",
        "The folder, or the one that it lies in, is on a full or read-only disk, or may not be written by this user.",
        "Make room, or write somewhere else with -o.",
    ),
    "SM-INPUT-001": (
        "Inputs are missing or unknown",
        "A call must give every input of the model by its name, and nothing else.",
        "Compare with the names in the message.",
    ),
    "SM-INPUT-002": (
        "An input has the wrong type",
        "The array's dtype is not the one that the model declares; nothing is converted silently.",
        "Convert it: array.astype(...).",
    ),
    "SM-INPUT-003": (
        "An input has the wrong shape",
        "The rank or a fixed dimension differs from the model's.",
        "Compare with the shape in the message.",
    ),
    "SM-INPUT-004": (
        "The compiled model has no session here",
        "`close` ended its session and removed its temporary folder, or its library is for another architecture.",
        "Compile again, or `save` the artifact before closing; run an artifact on the architecture it was made for.",
    ),
    "SM-INPUT-005": (
        "A tensor that is not contiguous",
        "An OrtValue over a tensor's memory needs its elements in order, without gaps.",
        "Call .contiguous() first.",
    ),
    "SM-INPUT-006": (
        "Inputs that do not fit each other",
        "The call failed, and sizes that the model declares under one name, such as `batch` or `sequence`, differ "
        "between the inputs that were given.",
        "Give the inputs the same size there: pad or cut the shorter one, and its mask with it.",
    ),
    "SM-PRECISION-001": (
        "Calibration data cannot be used",
        "A lower precision is chosen and measured by running the model on the data: NaN, infinities or no call at all "
        "would say nothing about it.",
        "Give one .npz file for each call, with all inputs of the model by name.",
    ),
    "SM-PRECISION-002": (
        "No static int8",
        "Static int8 needs ranges of activations, which onnxruntime.quantization finds on calibration data; some "
        "models it cannot quantize.",
        "Give --calibrate DATA; or use int8-dynamic, which needs no data.",
    ),
    "SM-PRECISION-003": (
        "The accuracy budget cannot be met",
        "Layers went back to a wider type until all were wide, and the outputs still were not accurate enough.",
        "Ask for less, or for a wider precision. The message has the best that was found.",
    ),
    "SM-BATCH-001": (
        "A package for data sets is missing",
        "`smelt batch` reads and writes with pyarrow, decodes images with Pillow, tokenizes with tokenizers, and runs "
        "on clusters with ray. None of them is needed for anything else.",
        "Install the extra that the message names, e.g. pip install 'onnx-smelt[batch]'.",
    ),
    "SM-BATCH-002": (
        "No input files",
        "No file matches the patterns given with -i.",
        "Quote patterns so that the shell leaves them alone: -i 'in/*.parquet'.",
    ),
    "SM-BATCH-003": (
        "An input file cannot be read",
        "A file is truncated, of another format than its ending says, or of no known format; or may not be read.",
        "Write the file again, or leave it out of the pattern.",
    ),
    "SM-BATCH-004": (
        "The data does not fit the model",
        "Every model input needs a column, and every column that is named must be there, in all files; the message "
        "lists what the model takes and what the data has.",
        "Name the columns: --map input=column; --text column for a tokenizer; --keep for columns that pass through.",
    ),
    "SM-BATCH-005": (
        "A column has the wrong type",
        "Its values cannot become the input's type or shape without loss.",
        "--cast rounds numbers; --tokenizer makes tokens of text; --image declares the steps for images; or map "
        "another column.",
    ),
    "SM-BATCH-006": (
        "The output folder holds something else",
        "Parts are written only into a folder that is new, empty, or the output of an earlier run.",
        "Name another folder.",
    ),
    "SM-BATCH-007": (
        "The output folder belongs to another run",
        "It holds parts that were made with another model, mapping or input; parts of two kinds in one folder would be "
        "told apart by nobody.",
        "Name another folder, or --restart to remove the earlier parts.",
    ),
    "SM-BATCH-008": (
        "The output cannot be written",
        "The disk is full or read-only, or the folder may not be written. Finished parts are valid.",
        "Make room or change the permissions, and run the same command again: it goes on where it stopped.",
    ),
    "SM-BATCH-009": (
        "Too many rows failed",
        "More rows than --max-errors allows have no result. Finished parts are valid.",
        "Look at _smelt/errors.jsonl in the output folder.",
    ),
    "SM-BATCH-010": (
        "Parts failed",
        "A part could not be read, the model refuses every row, or a worker died or hung at it twice. Other parts are "
        "finished and valid.",
        "Mend what the message names and run the same command again. Out of memory: a smaller --batch or fewer "
        "--workers.",
    ),
    "SM-BATCH-011": (
        "The model cannot take batches as asked",
        "Its batch dimension is fixed to another size, or an input has none.",
        "Leave --batch out, or export the model with a free batch dimension.",
    ),
    "SM-BATCH-012": (
        "A preprocessing or postprocessing function failed",
        "It raised on the first rows, returned another number of rows than it was given, or something that is no "
        "columns.",
        "Call it by hand with the first rows of the input.",
    ),
    "SM-BATCH-013": (
        "The output folder is in use",
        "Another run holds the lock of the folder.",
        "Wait for it, or name another folder.",
    ),
    "SM-BATCH-014": (
        "A result is no column",
        "An output must be a tensor whose first axis counts the rows, of the same type for all batches.",
        "Choose outputs with --outputs, or reshape them in a postprocessing function.",
    ),
    "SM-BATCH-015": (
        "The Ray cluster cannot be used",
        "It cannot be reached, or its nodes lack smelt, the input or the output folder.",
        "Check the address, and that every node has smelt installed and both folders mounted at the same paths.",
    ),
    "SM-TORCH-001": (
        "Nodes of a PyTorch graph cannot run in ONNX Runtime",
        "With `strict=True` every node must be converted; the message lists those that would stay in torch, with the "
        "reason for each.",
        "Leave `strict` off to run those nodes in torch, or add a converter with `smelt.register_converter`.",
    ),
    "SM-TORCH-002": (
        "A compiled graph differs from torch",
        "With `check` set, every call is compared with torch's own result; the message names the output and the error.",
        "Report the graph with the option `dump`; leave the node in torch or the kernels off meanwhile.",
    ),
    "SM-TORCH-004": (
        "A module that cannot be saved or trained as asked",
        "A saved module is one program: it writes no buffers, returns tensors and plain values, and has no gradients.",
        "Do as the message says.",
    ),
    "SM-VERIFY-001": (
        "A result breaks the numerics contract",
        "A region or the model differs from the reference by more than the tolerance; the region is rejected.",
        "Nothing to do for a rejected region. For a whole model: report it with `smelt compile --dump`.",
    ),
    "SM-VERIFY-002": (
        "Verification did not finish",
        "The subprocess that runs the model was stopped by its time or memory limit, or died.",
        "Give smaller inputs with --shapes, or raise the limit.",
    ),
    "SM-VERIFY-003": (
        "Not what --strict asks for",
        "There was a fault inside smelt, or a region that could not be verified. Without --strict either costs the "
        "region, and the artifact is right.",
        "Look at the fault with its repro command; give inputs that the model takes; or leave --strict out.",
    ),
    "SM-VERIFY-004": (
        "Less in kernels than --min-coverage asks for",
        "The share of the nodes that smelt has kernels for is below the bound that was given.",
        "`smelt explain` says why nodes fall back to ONNX Runtime. --keep writes the artifact all the same.",
    ),
}
