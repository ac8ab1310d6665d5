// Which tensors the layers of a model have, by its config.json alone: for a model without weights.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model_files/hf/folder_config.h"

namespace weft::model_files::hf {

class LayerTensors {
  public:
    // draft_heads: as for ParseFolderConfig. Errors: kCorrupt, of keys that name layers.
    static Result<LayerTensors> Of(const FolderConfig& config, int64_t draft_heads);

    // Whether layer `layer` has a tensor of this GGUF name ("attn_q.weight"). The answer is exact
    // for tensors that only some layers or some models of an architecture have. All others follow
    // from the model's sizes.
    bool Has(int64_t layer, std::string_view tensor) const;
    // Whether the family's rules or more_tensors have this name.
    bool Names(std::string_view tensor) const { return known_.contains(tensor); }
    // Attention's output gate has a row for each column; if false, one for each head.
    bool gates_columns() const { return Names("attn_gate.columns"); }

  private:
    struct Layer {
        bool attends = true, has_state = false, has_mlp = true, sparse = false, windowed = false;
    };
    Status ReadNames(const FolderConfig& config);
    Status ReadLayers(const FolderConfig& config);
    bool OfSome(const Layer& layer, std::string_view tensor) const;

    // The family's tensors, and whether every layer of every model has them.
    std::map<std::string, bool, std::less<>> known_;
    std::vector<Layer> layers_;  // one more than the model has: its draft head
    bool draft_head_ = false, norms_heads_ = false, k_is_v_ = false, corrects_scores_ = false;
};

}  // namespace weft::model_files::hf
