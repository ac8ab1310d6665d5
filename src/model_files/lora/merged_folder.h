// The folder of a model with an adapter merged in, under the folder's own names: for models that
// hf::PlanFolder cannot write. Tensors that the adapter does not change are copied, including
// tensors of parts that Weft does not run (vision towers, layers that predict further tokens).
#pragma once

#include <memory>
#include <string>

#include "model_files/hf/export.h"
#include "model_files/lora/merged_source.h"

namespace weft::model_files {

class FolderTensors;

struct MergedFolder {
    const FolderTensors* folder;           // of `merged`
    std::unique_ptr<MergedSource> merged;  // tensors have the names of the folder's files
};

// merged: of a model in a folder. Errors: kUnsupported, naming the tensor: the folder does not have
// a matrix that the adapter changes as plain floats.
Result<MergedFolder> MergeInFolder(const MergedSource& merged);

// As hf::PlanFolder. Changed tensors become `type`, and so do others of the folder's main type.
Result<hf::FolderPlan> PlanMergedFolder(const MergedFolder& source, const std::string& folder,
                                        hf::SafeType type);

}  // namespace weft::model_files
