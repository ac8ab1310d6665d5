// Tensors of a file of torch.save: the ".bin" of PEFT and transformers before safetensors.
//
// Such a file is a zip whose parts are stored without compression: NAME/data.pkl, a pickle of a
// dict of tensors by name, and NAME/data/KEY, the elements of each storage. This reader runs no
// code of the pickle. It knows the few opcodes and the three functions that plain tensors need
// (collections.OrderedDict, torch._utils._rebuild_tensor_v2, torch._utils._rebuild_parameter), and
// refuses any other by name.
//
// Input is hostile: all sizes are checked against the file's before anything is allocated, and
// allocations stay proportional to the pickle, which is at most 32 MiB.
// Sources: APPNOTE.TXT (PKWARE's description of zip), pickletools of Python, and PyTorch's
// torch/serialization.py.
#pragma once

#include <vector>

#include "base/result.h"
#include "model_files/hf/safetensors.h"
#include "model_files/weight_file.h"

namespace weft::model_files::hf {

// The tensors, with offsets into the file. Errors: kIo; kCorrupt; kUnsupported for the format
// before PyTorch 1.6, a big-endian file, objects that are not tensors, and tensors whose elements
// are not contiguous.
Result<std::vector<SafeTensor>> ReadTorchFile(const WeightFile& file);

}  // namespace weft::model_files::hf
