#include "program/loss.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/check.h"

namespace weft::program {
namespace {

constexpr int64_t kRowUnit = 32, kMostRows = (int64_t{1} << 30) - 1;

int64_t RowsOf(const LossOptions& options) {
    return std::clamp<int64_t>(options.rows, 1, kMostRows);
}

class Expander {
  public:
    Expander(Differentiated differentiated, const LossOptions& options)
        : options_(options), ops_(std::exchange(differentiated.program.ops, {})) {
        result_.differentiated = std::move(differentiated);
    }

    ExpandedLoss Run() {
        const size_t turn = result_.differentiated.backward_begin;
        const Op* loss = nullptr;
        for (size_t i = 0; i < turn; ++i) {
            if (ops_[i].kind() == OpKind::kLinearCrossEntropy) {
                loss = &ops_[i];
            } else {
                program().ops.push_back(ops_[i]);
            }
        }
        result_.evaluate_begin = program().ops.size();
        if (loss != nullptr) Take(*loss);
        if (loss != nullptr && options_.evaluates) Evaluate();
        result_.predict_begin = program().ops.size();
        if (loss != nullptr) Predict();
        result_.differentiated.backward_begin = program().ops.size();
        for (size_t i = turn; i < ops_.size(); ++i) {
            if (ops_[i].kind() == OpKind::kLinearCrossEntropyGrad) {
                GoBack(ops_[i]);
            } else {
                program().ops.push_back(ops_[i]);
            }
        }
        WEFT_CHECK(CheckShapes(program()).ok());
        return std::move(result_);
    }

  private:
    Program& program() { return result_.differentiated.program; }
    const Value& value(ValueId id) const { return result_.differentiated.program.value(id); }

    void Take(const Op& loss) {
        loss_ = loss.as<LinearCrossEntropy>();
        x_ = loss.inputs[0];
        weight_ = loss.inputs[1];
        targets_ = loss.inputs[2];
        if (loss_.biased) bias_ = loss.inputs[3];
        if (loss_.parts.empty()) loss_.parts = {value(weight_).shape[0]};
        piece_rows_ = LossPieceRows(value(weight_), options_);
        pieces_ = (RowsOf(options_) + piece_rows_ - 1) / piece_rows_;
    }

    void Evaluate() {
        LossValues& values = result_.values;
        values.evaluated = Add("evaluated", {kOutputs});
        values.evaluated_hits = Add("evaluated_hits", {kOutputs});
        terms_ = {};
        for (int64_t piece = 0; piece < pieces_; ++piece) {
            pass_ = "evaluated." + std::to_string(piece);
            const int64_t dim = OutputPiece(piece, piece_rows_);
            const Logits logits = EmitLogits(x_, dim);
            EmitLosses(EmitStats(logits.last, dim), values.evaluated, values.evaluated_hits, dim);
        }
    }

    void Predict() {
        pass_ = "predicted";
        const int64_t first = OutputPiece(0, options_.predicted_rows);
        const ValueId own = EmitLogits(x_, first).last;
        result_.values.predicted = own;
        if (loss_.parts.size() == 1) return;
        int64_t tokens = 0;
        for (const int64_t part : loss_.parts) tokens += part;
        result_.values.predicted = Emit(AllGather{Group::kTensor, loss_.parts, loss_.first_row},
                                        {own}, "all", Shape{first, tokens});
    }

    void GoBack(const Op& grad) {
        const ValueId dloss = grad.inputs[0], dx = grad.outputs[0];
        // Recomputed or gathered inputs are other values than those of the forward ops.
        x_ = grad.inputs[1];
        weight_ = grad.inputs[2];
        targets_ = grad.inputs[3];
        if (loss_.biased) bias_ = grad.inputs[4];
        const auto& backward = grad.as<LinearCrossEntropyGrad>();
        LossValues& values = result_.values;
        values.losses = Add("losses", {kOutputs});
        values.hits = Add("hits", {kOutputs});
        terms_ = loss_.terms;
        terms_.tokens = std::accumulate(loss_.parts.begin(), loss_.parts.end(), int64_t{0});
        for (int64_t piece = 0; piece < pieces_; ++piece) {
            pass_ = "losses." + std::to_string(piece);
            const int64_t dim = OutputPiece(piece, piece_rows_);
            const Logits logits = EmitLogits(x_, dim);
            const ValueId stats = EmitStats(logits.last, dim);
            EmitLosses(stats, values.losses, values.hits, dim);
            program().ops.push_back({CrossEntropyGrad{loss_.first_row, terms_},
                                     {View(dloss, dim), stats, View(targets_, dim), logits.last},
                                     {logits.last}});
            const ValueId slope = BackToProduct(logits, dim);
            program().ops.push_back({MatMulGradInput{}, {slope, weight_}, {View(dx, dim)}});
            if (backward.trains_bias) {
                const ValueId db = grad.outputs.back();
                program().ops.push_back({BiasGrad{}, {slope, db}, {db}});
            }
            if (!backward.trains_weight) continue;
            const ValueId dw = grad.outputs[1];
            program().ops.push_back({MatMulGradWeight{}, {slope, View(x_, dim), dw}, {dw}});
        }
    }

    // The values between the product and the loss.
    struct Logits {
        ValueId product = kNoValue, scaled = kNoValue, last = kNoValue;
    };
    Logits EmitLogits(ValueId x, int64_t dim) {
        const Shape shape{dim, value(weight_).shape[0]};
        Logits logits;
        logits.product = Emit(MatMul{loss_.cut}, {View(x, dim), weight_}, "logits", shape);
        if (loss_.biased) {
            logits.product = Emit(AddBias{}, {logits.product, bias_}, "biased", shape);
        }
        logits.scaled = logits.product;
        if (loss_.scale != 1) {
            logits.scaled = Emit(Scale{loss_.scale}, {logits.product}, "scaled", shape);
        }
        logits.last = logits.scaled;
        if (loss_.soft_cap != 0) {
            logits.last = Emit(SoftCap{loss_.soft_cap}, {logits.scaled}, "capped", shape);
        }
        return logits;
    }
    // The gradient of the product. Precondition: the last value holds its own gradient.
    ValueId BackToProduct(const Logits& logits, int64_t dim) {
        const Shape shape{dim, value(weight_).shape[0]};
        ValueId slope = logits.last;
        if (loss_.soft_cap != 0) {
            slope = Emit(SoftCapGrad{loss_.soft_cap}, {slope, logits.scaled}, "d.scaled", shape);
        }
        return loss_.scale == 1 ? slope : Emit(Scale{loss_.scale}, {slope}, "d.logits", shape);
    }

    // Emits the statistics of all ranks.
    ValueId EmitStats(ValueId logits, int64_t dim) {
        const int64_t each = terms_.stats();
        const ValueId own = Emit(SoftmaxStats{loss_.first_row, terms_.smoothing > 0},
                                 {logits, View(targets_, dim)}, "stats", Shape{dim, each});
        const auto ranks = static_cast<int64_t>(loss_.parts.size());
        if (ranks == 1) return own;
        const std::vector<int64_t> parts(loss_.parts.size(), each);
        return Emit(AllGather{Group::kTensor, parts, each * OwnPart()}, {own}, "all.stats",
                    Shape{dim, each * ranks});
    }
    int64_t OwnPart() const {
        const int64_t own = value(weight_).shape[0];
        size_t rank = 0;
        for (int64_t begin = 0; begin != loss_.first_row || loss_.parts[rank] != own; ++rank) {
            begin += loss_.parts[rank];
        }
        return static_cast<int64_t>(rank);
    }
    void EmitLosses(ValueId stats, ValueId losses, ValueId hits, int64_t dim) {
        program().ops.push_back({CrossEntropy{terms_},
                                 {stats, View(targets_, dim)},
                                 {View(losses, dim), View(hits, dim)}});
    }

    // ---- Values -----------------------------------------------------------------------------

    // The rows `dim` of a value with R rows.
    ValueId View(ValueId base, int64_t dim) {
        const RowPiece piece = PieceOf(dim);
        const std::string name =
            fmt::format("{}[{}:{}]", value(base).name, piece.begin, piece.begin + piece.rows);
        const auto [known, added] = views_.try_emplace(name, kNoValue);
        if (!added) return known->second;
        Value view = value(base);
        view.name = name;
        view.storage = Storage::kView;
        view.base = base;
        view.base_begin = piece.begin * view.shape.Elements(0, 1);
        view.shape.dims[0] = dim;
        return known->second = program().AddValue(std::move(view));
    }
    ValueId Emit(OpAttributes attributes, std::vector<ValueId> inputs, const std::string& name,
                 const Shape& shape) {
        return program().Emit(std::move(attributes), std::move(inputs), pass_ + "." + name, shape);
    }
    ValueId Add(const std::string& name, const Shape& shape) {
        return program().AddValue({name, DType::kF32, shape, Storage::kActivation});
    }

    const LossOptions options_;
    const std::vector<Op> ops_;
    ExpandedLoss result_;
    LinearCrossEntropy loss_;
    ValueId x_ = kNoValue, weight_ = kNoValue, targets_ = kNoValue, bias_ = kNoValue;
    LossTerms terms_;  // of the ops that are emitted
    int64_t piece_rows_ = 0, pieces_ = 0;
    std::string pass_;                                // prefix of the values' names
    std::unordered_map<std::string, ValueId> views_;  // by name
};

}  // namespace

int64_t LossPieceRows(const Value& weight, const LossOptions& options) {
    const int64_t row_bytes = weight.shape[0] * static_cast<int64_t>(sizeof(float));
    int64_t bytes = options.logits_bytes;
    // A weight of a block type is widened again for each piece.
    if (Info(weight.dtype).quantized) {
        bytes = std::max(bytes, RowBytes(weight.dtype, weight.shape.Elements(0, 0)) / 2);
    }
    const int64_t rows = std::max(bytes / row_bytes / kRowUnit, int64_t{1}) * kRowUnit;
    return std::min(rows, RowsOf(options));
}

ExpandedLoss ExpandLoss(Differentiated differentiated, const LossOptions& options) {
    return Expander(std::move(differentiated), options).Run();
}

}  // namespace weft::program
