// Builder of Programs, which the files of all model families use. It knows this rank's shard, names
// and slices the weights, and places the collectives. So the file of a family reads like the paper
// about the model.
//
// The residual stream is replicated on all tensor ranks. In projections *to* heads or MLP columns,
// each rank computes its own outputs. Projections *from* heads or MLP columns give partial sums,
// which are all-reduced (Shoeybi et al. 2019, Megatron-LM). The embedding table is sharded by rows:
// each rank looks up the tokens whose rows it holds, and the sum over ranks is the embedding.
//
// If there are errors (a tensor is missing or too small), Finish() returns the first one.
#pragma once

#include <map>
#include <set>
#include <string>

#include "model/hyper.h"
#include "model/shard.h"
#include "model_files/model_file.h"
#include "program/program.h"
#include "program/target.h"
#include "tensor/kv_types.h"

namespace weft::model {

// The values that rank 0 has at the end of a step.
enum class Outputs {
    kLogits,  // "logits" of the output rows
    kBoth,    // "logits", and "hidden" [T, hidden]: all rows after the final norm; only without
              // pipeline stages
    kHidden,  // only "hidden"; the output matrix is not needed
    // Training: only "vectors", on the ranks of the last stage: the output rows after the final
    // norm [R, hidden]; of a model with a score head, its outputs for these rows [R, labels].
    kVectors,
};

struct BuildOptions {
    KvTypes kv_dtype;
    // false (training): there is no KV cache, and attention sees only the rows of the step. The
    // ranks of the last stage keep the logits, because they compute the loss, and do not send them
    // to rank 0.
    bool cache = true;
    // With a cache: the ranks of the last stage keep the logits, as without one.
    bool keeps_logits = false;
    Outputs outputs = Outputs::kLogits;
    // Length of the job's longest sequence, by which the factors of LongRoPE are chosen. 0: all
    // sequences are within the trained context.
    int64_t context = 0;
    program::Target target{};  // limits of the device that runs the Program
    bool draft_head = false;   // adds the model's multi-token prediction head (draft_head.h)
};

// The rows and columns of a tensor of the file that a weight contains, and the shape that the whole
// tensor must have. A vector has no columns.
struct Slice {
    Span rows, cols;
    int64_t all_rows = 0, all_cols = 0;
};

class Builder {
  public:
    Builder(const Hyper& hyper, const Shard& shard, const model_files::ModelSource& source,
            const BuildOptions& options);

    // Returns the residual stream of this stage's first layer: the embedded tokens, or rows
    // received from the previous stage.
    program::ValueId Enter();
    // This stage's layers, by the architecture's `build`. With a separate head, keeps the residual
    // stream before the layers that the head reads.
    program::ValueId Layers(program::ValueId (*build)(Builder&, program::ValueId),
                            program::ValueId x);
    // Ends the stage. The last stage computes the final norm and the logits, or the values that
    // BuildOptions::outputs names, and sends them to rank 0. Earlier stages send x to the next
    // stage.
    void Leave(program::ValueId x);

    // These functions build the multi-token prediction head (draft_head.cc), after Leave.
    // BeginDraftHead takes the residual stream `x` after the last layer and returns the input of
    // the head's layer. From then until EndDraftHead, which takes the layer's output,
    // shard().layers is the head's layer.
    program::ValueId BeginDraftHead(program::ValueId x);
    void EndDraftHead(program::ValueId x);
    // Called for stages before the last. The last stage has the head; rank 0 receives the head's
    // logits.
    void RecvDraftHead();
    // Builds the EAGLE-3 or DFlash head, in place of the functions above.
    Status AddSeparateHead();

    void BeginLayer(int64_t layer);
    program::ValueId Norm(program::ValueId x, const std::string& weight, int64_t group);
    // As Norm, but the tensor's name is `weight`.`part` instead of `weight`.weight; if `part` is
    // empty, it is `weight`. name: of the result; empty: as the tensor.
    program::ValueId NormBy(program::ValueId x, const std::string& weight, const std::string& part,
                            int64_t group, std::string name = "");
    // Applies a norm to this rank's heads of queries or keys, with different weights for each head
    // (Command R+).
    program::ValueId NormApart(program::ValueId x, const std::string& weight, bool keys);
    // A norm without a weight.
    program::ValueId NormPlain(program::ValueId x, int64_t group);
    // Applies a norm to q and one to k, each over all heads together (OLMo 2). One all-reduce adds
    // the sums of squares of both.
    struct QueryAndKey {
        program::ValueId q, k;
    };
    QueryAndKey NormHeads(const QueryAndKey& x);
    // This layer's columns of the per-layer embedding (Gemma 4), [T, Hyper::layer_columns].
    program::ValueId LayerInput();
    // A product with a tensor of `rows` rows and `cols` columns that every rank computes
    // completely.
    program::ValueId ToAll(program::ValueId x, const std::string& weight, int64_t rows,
                           int64_t cols);
    // Projections to this rank's query heads, KV heads or MLP columns. If the file has a bias, it
    // is added. bias: the file must have one. A file may have a tensor attn_qkv in place of attn_q,
    // attn_k and attn_v, and a tensor ffn_up that has the rows of ffn_gate, then those of ffn_up
    // (Phi-3).
    program::ValueId ToHeads(program::ValueId x, const std::string& weight, bool bias);
    program::ValueId ToKvHeads(program::ValueId x, const std::string& weight, bool bias);
    program::ValueId ToFfn(program::ValueId x, const std::string& weight);
    // Queries, keys or values within +- Hyper::clamp, if the model has this limit.
    program::ValueId Clamped(program::ValueId x);
    // Projections back to the residual stream, summed over the tensor ranks.
    program::ValueId FromHeads(program::ValueId x, const std::string& weight);
    program::ValueId FromFfn(program::ValueId x, const std::string& weight);
    program::ValueId Rope(program::ValueId x, bool neighbours);
    // Queries times the attention temperature of their positions; q itself if the model has no
    // temperature.
    program::ValueId Tempered(program::ValueId q);
    // The output `a` of attention times a gate, which is computed from x with the tensor attn_gate.
    // There is one gate per head or one per column, depending on the number of rows of the tensor.
    program::ValueId GateHeads(program::ValueId a, program::ValueId x, program::RowGate gate);
    // Attention with this layer's window, and with the layer's sinks if the file has any. If
    // `chosen` is not kNoValue, attention reads only the blocks that it lists.
    program::ValueId Attention(program::ValueId q, program::ValueId k, program::ValueId v,
                               program::ValueId chosen = program::kNoValue);
    program::ValueId ChosenBlocks(program::ValueId x);
    // Attention over the keys and values of an earlier layer, for layers with SharesKv().
    bool SharesKv() const { return hyper_.KvLayer(layer_) != layer_; }
    program::ValueId SharedAttention(program::ValueId q);
    // The MLP of this layer, summed over the tensor ranks: experts (moe.cc) if the file has them,
    // else a dense MLP. It is gated unless Hyper::ungated is set.
    program::ValueId Mlp(program::ValueId x);
    program::ValueId DenseMlp(program::ValueId x);
    // The layer's experts; the router reads `gate`.
    program::ValueId Experts(program::ValueId x, program::ValueId gate);
    program::ValueId Gated(program::ValueId gate, program::ValueId up,
                           const std::string& name = "gated");
    // Layers with recurrent state (recurrent.cc, mamba2.cc), and the attention layers of such
    // models. The layers read rows to which a norm was applied; their results are summed over the
    // tensor ranks.
    bool HasState() const { return hyper_.recurrent.heads > 0 && IsRecurrent(source_, layer_); }
    program::ValueId GatedDeltaNet(program::ValueId x);
    program::ValueId Mamba(program::ValueId x);
    program::ValueId Mamba2(program::ValueId x);
    program::ValueId KimiDelta(program::ValueId x);
    program::ValueId ShortConv(program::ValueId x);
    program::ValueId GatedAttention(program::ValueId x);
    // Latent attention (latent.cc). x: rows to which a norm was applied. The result is summed over
    // the tensor ranks.
    program::ValueId LatentAttention(program::ValueId x);
    // DeepSeek-V4 (windows.cc). WindowAttention takes rows to which a norm was applied; its result
    // is summed over the tensor ranks. Each part of a layer ("attn", "ffn") reads one row that is
    // merged from the residual streams; Mix adds the part's result to the streams.
    program::ValueId WindowAttention(program::ValueId x);
    struct Merged {
        program::ValueId x, weights;
    };
    // Gemma 3n (alt_up.cc). A layer computes the first of the Predicted streams, and Corrected
    // adds its result `first`. AddToOthers adds x to all streams but the first.
    program::ValueId Predicted(program::ValueId streams);
    program::ValueId Corrected(program::ValueId predicted, program::ValueId first);
    // scale: a vector of factors, if the layer has it; empty: none.
    program::ValueId FirstStream(program::ValueId streams, const std::string& scale = "");
    program::ValueId AddToOthers(program::ValueId streams, program::ValueId x);
    program::ValueId Laurel(program::ValueId x);
    Merged Merge(program::ValueId streams, const std::string& part);
    program::ValueId Mix(program::ValueId streams, const Merged& merged, program::ValueId update);
    program::ValueId Add(program::ValueId a, program::ValueId b);
    // x times element `part` of this layer's tensor of `parts` elements; x itself if the file has
    // no such tensor.
    program::ValueId ScaleBy(program::ValueId x, const std::string& tensor, size_t part = 0,
                             size_t parts = 1);
    bool IsWindowed() const { return hyper_.IsWindowed(layer_); }  // this layer
    bool Rotates() const { return hyper_.Rotates(layer_); }
    bool Has(const std::string& tensor) const {  // of this layer: "attn_sinks.weight"
        return source_.FindTensor(Tensor(tensor)) != nullptr;
    }
    program::ValueId Scale(program::ValueId x, float factor);  // x itself if the factor is 1
    // A norm with an epsilon that differs from the model's.
    program::ValueId NormWithin(program::ValueId x, const std::string& weight, int64_t group,
                                float eps);

    const Hyper& hyper() const { return hyper_; }
    const Shard& shard() const { return shard_; }
    Result<program::Program> Finish() &&;

  private:
    // Builds the head of `model` into the model's Program. All names begin with kDraftPrefix.
    Builder(Builder& model, const Hyper& head, const Shard& shard,
            const model_files::ModelSource& source);
    void EagleLayer(program::ValueId state, program::ValueId embedded);
    // KeepContext writes the rows of a step of the model to the caches of a DFlash head.
    // BlockLayers returns the normed rows of a block that the head drafts.
    void KeepContext(program::ValueId states);
    program::ValueId BlockLayers(program::ValueId embedded);
    // Writes keys and values to the layer's caches.
    void Keep(program::ValueId k, program::ValueId v);
    // The layers whose input a separate head reads, before `end`.
    std::vector<int64_t> ReadsBefore(int64_t end) const;
    // The columns of all parts beside each other.
    program::ValueId Joined(std::initializer_list<program::ValueId> parts,
                            const std::string& name) {
        return Joined(std::vector(parts), name);
    }
    program::ValueId Joined(const std::vector<program::ValueId>& parts, const std::string& name);
    std::string Local(const std::string& name) const;        // "l3.attn_q"
    std::string Tensor(const std::string& name) const;       // "blk.3.attn_q"
    Slice RowsOf(const Span& rows, int64_t all_rows) const;  // rows of a [all_rows, hidden] tensor
    // columns of a [hidden, all_cols] tensor
    Slice ColumnsOf(const Span& cols, int64_t all_cols) const;
    HeadShape Heads() const;  // of this layer
    Span FfnColumns() const;  // of this layer, on this rank
    int64_t AllFfn() const;   // MLP columns of this layer
    Span QueryHeads() const;  // of this layer, on this rank
    Span KvHeads() const;
    Span Columns(const Span& heads) const;  // the columns of those heads
    Span ValueColumns(const Span& heads) const;
    // The place of a tensor in the file: it may be rows [begin, ...) of a larger tensor.
    struct Home {
        std::string tensor;
        int64_t begin = 0, all_rows = 0;
    };
    Home HomeOfHeads(const std::string& weight, int64_t begin, int64_t rows) const;
    Home HomeOfFfn(const std::string& weight) const;
    // name: name of the value; empty: as the tensor.
    program::ValueId Weight(const std::string& tensor, const Slice& slice, std::string name = "");
    program::ValueId FromHome(program::ValueId x, const std::string& weight, const Home& home,
                              const Span& rows, program::MatMul attributes, bool bias);
    Status CheckAllUsed() const;
    program::ValueId MatMul(program::ValueId x, const std::string& tensor, const Slice& slice,
                            program::MatMul attributes, bool bias, const std::string& name);
    // A projection back to the residual stream, summed over the tensor ranks. unit: shards are cut
    // at multiples of this number of columns.
    program::ValueId FromColumns(program::ValueId x, const std::string& weight, const Slice& slice,
                                 int64_t unit);
    // As FromColumns, before the sum over ranks.
    program::ValueId PartialFromColumns(program::ValueId x, const std::string& weight,
                                        const Slice& slice, int64_t unit);
    // x plus the bias of `weight`, if the file has one. x: whole sums over ranks.
    program::ValueId WithBias(program::ValueId x, const std::string& weight);
    // Whether rank 0 gets the logits of the last stage.
    bool SendsLogits() const { return options_.cache && !options_.keeps_logits; }
    // Whether sums over ranks are computed so that the result does not depend on how the model is
    // cut into shards (Target::float64_reductions). Training does not need this, because it
    // compares results with a tolerance.
    bool HidesCuts() const { return options_.cache && options_.target.float64_reductions; }
    static int64_t SegmentColumns(const model_files::TensorInfo& tensor, int64_t unit);
    // If the slice's columns begin or end inside quantization blocks, extends the slice to whole
    // blocks, and pads x with columns of zeros, so that x again has one column for each column of
    // the slice.
    program::ValueId WholeBlocks(program::ValueId x, const std::string& tensor, Slice& slice);
    program::ValueId AllReduce(program::ValueId x);
    void SetWide(program::ValueId id) {
        program_.values[static_cast<size_t>(id)].dtype = DType::kF64;
    }
    // Keys and values of a layer, and the caches that have the keys and values of earlier steps.
    struct KeysAndValues {
        program::ValueId k, v;
        std::vector<program::ValueId> caches;
    };
    std::vector<program::ValueId> Caches(int64_t layer);
    // The layers before `layer` whose keys and values are read by `layer` or by a later layer.
    std::vector<int64_t> SharedBefore(int64_t layer) const;
    void RecvShared();
    void SendShared();
    void LayerInputs();
    // Mixtures of experts (moe.cc).
    struct Routed {
        program::ValueId ids, weights;
    };
    Routed Route(program::ValueId x);
    program::ValueId ExpertsByToken();  // DeepSeek-V4
    program::ValueId WeighedRows(program::ValueId x, Routed& routed);
    Home HomeOfExperts(const std::string& weight) const;
    program::ValueId ToExperts(program::ValueId x, const Routed& routed, const std::string& weight);
    program::ValueId FromExperts(program::ValueId x, const Routed& routed,
                                 const std::string& weight, program::ValueId base);
    program::ValueId SharedExpert(program::ValueId x);
    program::ValueId SharedPart(program::ValueId x);
    program::ValueId WithIdentities(program::ValueId sum, program::ValueId x, const Routed& routed);
    program::ValueId RoutedSum(program::ValueId x, Routed routed, program::ValueId base);
    program::ValueId LatentExperts(program::ValueId x, const Routed& routed);
    int64_t ExpertWidth() const;  // number of columns of the rows that experts read and write
    // A stack of matrices (or vectors, if they have one row) that has a slice of each of some
    // matrices of a tensor. These are the matrices of this rank's experts, or those in `matrices`,
    // of all_matrices in all.
    program::ValueId Stack(const std::string& tensor, const Slice& slice);
    program::ValueId Stack(const std::string& tensor, const Slice& slice, const Span& matrices,
                           int64_t all_matrices);

    // Recurrent layers (recurrent.cc, mamba2.cc).
    program::ValueId NormGroups(program::ValueId x);
    struct DeltaGates {
        program::ValueId decay, strength;
    };
    program::ValueId StateSlots(const std::string& name, const program::Shape& shape);
    struct Gates {  // of a convolution
        program::ValueId inner = program::kNoValue, outer = program::kNoValue;
    };
    program::ValueId Convolved(program::ValueId x, const std::string& name, const Home& home,
                               const Span& rows, bool silu, const Gates& gates);
    bool SharesKeys() const;
    Span RecurrentKeys() const;
    program::Cut KeyCut() const { return SharesKeys() ? program::Cut::kNone : program::Cut::kRows; }
    program::ValueId Recur(program::DeltaRule rule, std::vector<program::ValueId> inputs,
                           const std::string& name);
    program::ValueId LowRank(program::ValueId x, const char* first, const char* second,
                             int64_t rank, const Span& rows, int64_t all_rows);
    program::ValueId OfOneLength(program::ValueId x);
    DeltaGates ToDeltaGates(program::ValueId x);

    // Latent attention (latent.cc).
    program::ValueId QueryLatent(program::ValueId x);
    program::ValueId LatentQuery(program::ValueId x, program::ValueId latent);
    program::ValueId RotateLatent(program::ValueId x);
    KeysAndValues& Latents(program::ValueId x);
    program::ValueId ScaleHeads(program::ValueId x, const std::string& tensor, const Span& heads,
                                int64_t all_heads);
    program::ValueId NormIndex(program::ValueId x, const std::string& name, int64_t columns);
    program::ValueId RotateIndex(program::ValueId x, const std::string& name);
    program::ValueId IndexQuery(program::ValueId x, program::ValueId latent);
    bool UsesIndexer() const;
    program::ValueId Chosen(program::ValueId x, program::ValueId latent);
    bool HasBlockIndexer(int64_t layer) const;
    // stride: positions per row.
    program::ValueId RowCache(const std::string& name, int64_t columns, int64_t stride = 1);
    program::ValueId HeadMatrices(const std::string& own, int64_t rows, int64_t cols,
                                  bool transposed);
    program::ValueId Pick(program::ValueId x, int64_t heads, int64_t begin, int64_t size,
                          const std::string& name);
    // transposed: multiplies by the other side of the matrices.
    program::ValueId EachHead(program::ValueId x, program::ValueId matrices,
                              const std::string& name, bool transposed = false);
    program::ValueId PadHeads(program::ValueId x, program::ValueId rest, int64_t heads,
                              int64_t size, const std::string& name);
    program::ValueId CachedMeans(program::ValueId q_latent, program::ValueId q_key,
                                 program::ValueId x, program::ValueId query_latent);
    program::ValueId TrainedMeans(program::ValueId q_latent, program::ValueId q_key,
                                  program::ValueId x);
    void NeedNoIndexer();
    // DeepSeek-V4 (windows.cc).
    program::ValueId Spread(program::ValueId x);     // into streams, if the model has them
    program::ValueId MergeLast(program::ValueId x);  // merges the streams after the last layer
    program::ValueId AltUpWeights(program::ValueId x, const std::string& coefs, bool corrects);
    program::ValueId OtherStreams(program::ValueId others, program::ValueId first,
                                  const std::string& tensor);
    program::ValueId SpreadAltUp(program::ValueId x);
    program::ValueId MergeAltUp(program::ValueId x);
    program::ValueId Sparse(program::ValueId gate);  // of an MLP, cut if the layer cuts it
    program::ValueId StreamWeights(program::ValueId streams, const std::string& name,
                                   int64_t columns, const std::string& label);
    program::ValueId RotateLast(program::ValueId x, int64_t head_dim, const std::string& name,
                                float sign = 1, int64_t behind = 0);
    program::ValueId Pooled(program::ValueId x, const std::string& name, int64_t width);
    program::ValueId MeansOfWindows(program::ValueId values, program::ValueId x,
                                    const std::string& name, int64_t stride, bool overlaps);
    program::ValueId ChosenWindows(program::ValueId x, program::ValueId latent);
    program::ValueId FromGroups(program::ValueId x);
    // The tensor name of the final norm; LFM2's files have a different one.
    std::string OutputNorm() const;
    program::RmsNorm NormOf(int64_t group) const;
    program::ValueId Activated(program::ValueId x);  // with Hyper::ungated
    // Adds the vectors of each token's position and type, if the file has tables of them. Some
    // families apply a norm to the sum (Traits::norms_embedding).
    program::ValueId Placed(program::ValueId x);
    program::ValueId Positions(const model_files::TensorInfo& info);
    program::ValueId Types();
    program::ValueId Input(const char* name, int64_t rows);
    program::Glu GluOf(const std::vector<float>& limits) const;  // of this layer
    void Hidden(program::ValueId x);
    void Vectors(program::ValueId x);
    // The final norm of x; of a model whose layers end in a norm, x itself with this name.
    program::ValueId FinalNorm(program::ValueId x, const std::string& name);
    void Logits(program::ValueId x);
    // Product of rows x [R, hidden], after the final norm, with the matrix `tensor`. name: the
    // result's name.
    void ToLogits(program::ValueId x, const std::string& tensor, const std::string& name);
    // The tokens' rows of the embedding table `tensor`, summed over the tensor ranks and scaled.
    program::ValueId Embedded(const std::string& tensor, const std::string& name);
    // The same, of a table of `all` rows of which this rank holds `rows`, and not scaled.
    program::ValueId LookUp(const std::string& tensor, const std::string& name, const Span& rows,
                            int64_t all);
    std::string OutputMatrix() const { return hyper_.tied ? "token_embd" : "output"; }
    void Fail(Error error);

    Hyper hyper_;
    Shard shard_;
    const model_files::ModelSource& source_;
    BuildOptions options_;
    program::Program own_program_;
    program::Program& program_ = own_program_;
    std::string prefix_;  // of the names of weights and values
    std::string part_;    // names the values of a part of a layer that is built twice
    program::ValueId tokens_ = program::kNoValue, positions_ = program::kNoValue,
                     output_rows_ = program::kNoValue;
    program::ValueId chosen_ = program::kNoValue;  // what the last layer with an indexer has chosen
    int64_t layer_ = -1;
    Span own_layers_;  // the shard's layers, also while a part of them or a draft head is built
    std::map<int64_t, program::ValueId> reads_;  // the input of layers that a separate head reads
    // For Gemma 4's small models: the embedded tokens, the per-layer inputs of this stage's layers,
    // and, by layer, the keys and values that other layers read.
    program::ValueId embedded_ = program::kNoValue, layer_inputs_ = program::kNoValue;
    std::map<int64_t, KeysAndValues> kv_;
    std::set<std::string> read_;  // tensors whose values were read into the Program itself
    Result<void> status_;
};

}  // namespace weft::model
