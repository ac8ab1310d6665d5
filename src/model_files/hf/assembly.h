// Builds a GGUF-like table of tensors from the tensors of a Hugging Face folder.
//
// A family's rules and functions request weights by module name ("model.layers.0.mlp.up_proj"), get
// each weight as a matrix, whatever its form in the folder (nullptr: the folder has none), and add
// it under a GGUF name. Every tensor of the folder must be used or known to be unneeded, so that no
// model runs without some of its weights.
#pragma once

#include <string>
#include <vector>

#include "model_files/hf/family.h"
#include "model_files/hf/matrix.h"
#include "model_files/hf/packed.h"
#include "model_files/hf/quantization.h"
#include "model_files/hf/safetensors.h"
#include "model_files/model_file.h"

namespace weft::model_files::hf {

struct Assembled {
    std::vector<TensorInfo> tensors;
    std::vector<MatrixPtr> matrices;  // one per tensor
    TensorFacts facts;
};

class Assembly {
  public:
    // `config`: the config of the text model. All arguments must outlive the Assembly; `files` must
    // also outlive the matrices.
    Assembly(std::string folder, const Family& family, const Config& config,
             const Quantization& quantization, const TensorFiles& files);

    // Builds the whole table. Errors name the folder and the tensor.
    Result<Assembled> Run() &&;

    const Config& config() const { return config_; }
    const std::string& folder() const { return folder_; }

    // The weight of a linear layer, [out, in]. kUnsupported if it is quantized in a way that the
    // folder's config does not describe or Weft does not support. pieces: LinearParts::pieces; a
    // tensor of three dims has one matrix per piece.
    Result<MatrixPtr> Linear(const std::string& module, int64_t pieces = 1, bool exact = false);
    // A tensor of any rank from 1, as a matrix: all dims but the last are rows. F32, F16 or BF16.
    Result<MatrixPtr> Tensor(const std::string& name);
    // gpt-oss's experts in MXFP4, from the tensors NAME_blocks and NAME_scales, as [experts * rows,
    // cols].
    Result<MatrixPtr> Mxfp4(const std::string& name);
    // A tensor of any shape as a column, in F32, plus `add`.
    Result<MatrixPtr> Column(const std::string& name, float add = 0);
    // A table of numbers in [0, below), I32 or I64 in the folder, as I32.
    Result<MatrixPtr> Numbers(const std::string& name, int64_t below);
    // The numbers of a tensor with `dims` dims, I32 or I64.
    Result<std::vector<int64_t>> Integers(const SafeTensor& tensor, size_t dims) const;
    // The linear layers named by `pattern`, with '*' replaced by the expert's number, stacked.
    Result<MatrixPtr> Experts(const std::string& pattern, int64_t count);

    // The matrices below each other. `what` names them in the error if their types or columns
    // differ.
    Result<MatrixPtr> Joined(std::vector<MatrixPtr> parts, const std::string& what) const;

    // The number of experts in config.json, under any of the key's spellings.
    Result<int64_t> ExpertCount() const;

    // If qk_layernorm is set, adds the norms of queries and keys. The folder has one norm for all
    // heads of queries, and one for those of keys, in PREFIXq_layernorm and PREFIXk_layernorm.
    Status AddHeadNorms(int64_t layer, const std::string& prefix);

    // dims: GGUF's order, columns first; empty: [cols, rows].
    void Add(std::string gguf, MatrixPtr matrix, std::vector<int64_t> dims = {});
    void AddVector(std::string gguf, MatrixPtr column);
    // Adds PART_exps.weight of a layer. stack: the matrices of `experts` experts below each other.
    void AddExperts(int64_t layer, std::string_view part, MatrixPtr stack, int64_t experts);
    // Appends the number in the tensor `name` to those of the key `key` (TensorFacts::numbers).
    Status AddNumber(const std::string& key, const std::string& name);
    // Adds BASE.weight, whose runs of rows have factors. The factors are multiplied into an F32
    // matrix; other matrices get a vector BASE.scale.
    void AddScaled(const std::string& base, MatrixPtr matrix, const std::vector<RowScale>& scales);
    // The same for a linear layer, whose bias has the factors `of_bias`, one for each of `scales`.
    // rows: of the layer, or 0.
    Status AddScaledLinear(const std::string& base, const std::string& module, int64_t rows,
                           const std::vector<RowScale>& scales, std::vector<RowScale> of_bias);
    // Adds the table of vectors by position, from row `first` on.
    Status AddPositions(const std::string& name, int64_t first);
    // The name beside the layers: "transformer.wpe" for the layer "transformer.h.0." of "h.".
    static std::string Beside(const std::string& prefix, std::string_view layers,
                              std::string_view name);
    // "blk.3." + name, for layer 3.
    static std::string Block(int64_t layer, std::string_view name);

    // The error that a tensor is missing.
    Error Missing(const std::string& name) const;
    // kCorrupt if the tensor is missing or has another number of rows; rows == 0: any number.
    Result<MatrixPtr> Checked(Result<MatrixPtr> matrix, const std::string& name,
                              int64_t rows) const;
    bool Has(const std::string& name) const { return files_.Find(name) != nullptr; }
    // Whether the folder has a weight of this linear layer, plain or packed.
    bool HasLinear(const std::string& module) const {
        return Has(module + ".weight") || Has(module + ".qweight") ||
               Has(module + ".weight_packed");
    }
    const SafeTensor* Find(const std::string& name) const { return files_.Find(name); }
    // Rows and columns of the blocks of an FP8 module, each of which has one scale; 0, 0: not
    // known.
    std::pair<int64_t, int64_t> ScaleBlock(const std::string& module) const;

  private:
    Status FindPrefix();
    Status AddEnds();
    // Adds a tensor of layer `layer` that has some rows of a linear layer and, if it has one, of
    // its bias. pairs: as for Form::kQuery.
    Status AddRows(int64_t layer, std::string_view gguf, const std::string& module,
                   const RowRuns& rows, bool pairs);
    Status SplitQkv(int64_t layer, const std::string& module);
    Result<bool> AddScoreHead();
    Status AddEncoderHead();
    Status CheckMissingHead() const;
    Result<bool> IsHeadTied(const MatrixPtr& head, const std::string& embedding);
    Status AddLayer(int64_t layer, const std::string& prefix);
    Status AddDraftHead(const DraftHeadNames& names, const std::string& layer);
    Status FindDraftHead();
    Status AddSeparateHead();
    Status AddHeadEnds();
    Status AddDraftTokens(int64_t drafts, int64_t vocab);
    Status AddOwnEnd(std::string_view gguf, const std::string& name);
    Status AddRule(int64_t layer, const std::string& prefix, const RuleOf<std::string>& rule);
    Status AddFusedExperts(int64_t layer, const std::string& name, const std::string& last);
    Result<MatrixPtr> StackedExperts(const std::string& pattern, int64_t count);
    Result<MatrixPtr> FusedExperts(const std::string& name, int64_t experts, int64_t rows);
    Result<MatrixPtr> PackedExperts(const SafeTensor& tensor, int64_t experts, int64_t rows);
    Result<MatrixPtr> Packed(const std::string& module, const LinearParts& parts);
    Status AddRopeFactors();
    Result<MatrixPtr> InPairs(MatrixPtr matrix, const std::string& name, Form form);
    std::string_view QuantizedBy(const std::string& name) const;
    Result<MatrixPtr> OfTensor(const SafeTensor& tensor, int64_t rows, int64_t cols);
    Status CheckAllUsed() const;
    bool IsDraftLayer(int64_t layer) const;
    bool Unneeded(const std::string& name) const;
    const SafeTensor* Use(const std::string& name);

    std::string folder_;
    const Family& family_;
    const std::vector<RuleOf<std::string>> rules_;
    const Config& config_;
    const Quantization& quantization_;
    const TensorFiles& files_;
    std::string prefix_;         // "model."
    std::string embedding_;      // "model.embed_tokens"
    std::string layers_prefix_;  // "model.layers."
    int64_t layers_ = 0;
    int64_t head_dim_ = 0;
    bool pairs_ = false;  // rows of Q and K are reordered
    int64_t latent_unrotated_ =
        0;  // latent attention: dims of a query head before the rotated ones
    std::vector<bool> used_;
    Assembled out_;
};

}  // namespace weft::model_files::hf
