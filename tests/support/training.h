// One training step of a model in any layout in the interpreter: forward and backward of all ranks,
// with the gradients assembled into whole tensors.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "program/differentiate.h"
#include "program/recompute.h"
#include "program/sequence_parallel.h"
#include "support/interpreter.h"
#include "support/tiny_model.h"
#include "train/load_balance.h"

namespace weft::support {

// Input of one step. `dlogits` is dL/d(logits) of L = sum(dlogits * logits).
struct Batch {
    std::vector<double> tokens, positions, output_rows;
    std::vector<kernels::Sequence> sequences;
    std::vector<double> dlogits;
    double dbalance = 0;  // of the load-balance loss
};

// Sequences of these lengths. Every other row has logits, one of them twice.
inline Batch MakeBatch(const model::Hyper& hyper, const std::vector<int32_t>& lengths) {
    Batch batch;
    for (int32_t length : lengths) {
        const auto begin = static_cast<int32_t>(batch.tokens.size());
        batch.sequences.push_back({begin, length, 0, {}});
        for (int32_t i = 0; i < length; ++i) {
            const auto row = static_cast<uint32_t>(begin + i);
            const double u = Formula("tokens", row) * 0.5 + 0.5;
            batch.tokens.push_back(std::floor(u * static_cast<double>(hyper.vocab)));
            batch.positions.push_back(i);
            if (row % 2 == 0) batch.output_rows.push_back(row);
        }
    }
    batch.output_rows.push_back(batch.output_rows.front());
    const size_t count = batch.output_rows.size() * static_cast<size_t>(hyper.vocab);
    const Stream stream("dlogits");
    for (size_t i = 0; i < count; ++i) batch.dlogits.push_back(stream[i]);
    return batch;
}

template <typename To, typename From>
std::vector<To> Cast(const std::vector<From>& from) {
    return std::vector<To>(from.begin(), from.end());
}

using Tensors = std::map<std::string, std::vector<double>>;

template <typename Real>
class Training {
  public:
    // `frozen`: tensors without a gradient. `balance`: include the experts' load-balance loss.
    Training(const model::Hyper& hyper, const TinySource& source, const model::Layout& layout,
             const std::vector<std::string>& frozen = {},
             program::Recompute recompute = program::Recompute::kNone, bool balance = false,
             bool row_shares = false)
        : hyper_(hyper),
          source_(source),
          layout_(layout),
          recompute_(recompute),
          balance_(balance),
          row_shares_(row_shares),
          world_(Backward(Build(hyper, source, layout, {DType::kF32, false}), frozen), layout.tp) {
        for (size_t rank = 0; rank < world_.size(); ++rank) BindWeights(rank);
    }

    const std::vector<program::Differentiated>& ranks() const { return ranks_; }
    World<Real>& world() { return world_; }

    // Runs the step; gradients are added to those of the steps before.
    void Run(const Batch& batch) {
        for (size_t rank = 0; rank < world_.size(); ++rank) {
            Bind(rank, "tokens", batch.tokens);
            Bind(rank, "positions", batch.positions);
            Bind(rank, "output_rows", batch.output_rows);
            Bind(rank, "d.logits", batch.dlogits);
            Bind(rank, "d.load_balance", {batch.dbalance});
        }
        ASSERT_EQ(world_.Run(static_cast<int64_t>(batch.tokens.size()),
                             static_cast<int64_t>(batch.output_rows.size()), batch.sequences),
                  "");
    }

    // Logits of the last rank, which is in the last stage.
    const std::vector<Real>& Logits() {
        const size_t last = world_.size() - 1;
        return world_.at(last, world_.program(last).Find("logits"));
    }

    Real Balance() {
        const size_t last = world_.size() - 1;
        return world_.at(last, world_.program(last).Find("load_balance")).at(0);
    }

    // Gradients of whole tensors. Ranks of one group that hold the same elements must agree to
    // `tolerance`; elements on several stages (a tied table) are summed.
    Tensors Gradients(double tolerance) {
        Tensors sums;
        for (size_t first = 0; first < world_.size(); first += static_cast<size_t>(layout_.tp)) {
            for (const auto& [name, stage] : StageGradients(first, tolerance)) {
                std::vector<double>& sum = sums[name];
                sum.resize(stage.size(), 0.0);
                for (size_t i = 0; i < sum.size(); ++i) sum[i] += stage[i];
            }
        }
        return sums;
    }

  private:
    std::vector<program::Program> Backward(const std::vector<program::Program>& forward,
                                           const std::vector<std::string>& frozen) {
        std::vector<program::Program> programs;
        const auto plan = model::PlanShards(hyper_, source_, layout_);
        for (program::Program program : forward) {
            program::DifferentiateOptions options;
            if (balance_) {
                auto loss =
                    train::AddLoadBalance(program, hyper_, plan->shards[programs.size()], source_);
                EXPECT_TRUE(loss.ok()) << loss.error().message;
                options.side_output = *loss;
            }
            if (row_shares_) {
                program = program::ApplySequenceParallel(std::move(program), layout_.tp);
            }
            options.output = program.Find("logits");
            for (size_t i = 0; i < program.values.size() && !frozen.empty(); ++i) {
                if (program.values[i].storage != program::Storage::kWeight) continue;
                if (std::ranges::count(frozen, program.values[i].name) > 0) continue;
                options.weights.push_back(static_cast<ValueId>(i));
            }
            auto result = program::Differentiate(program, options);
            EXPECT_TRUE(result.ok()) << result.error().message;
            ranks_.push_back(program::WithRecompute(std::move(result).value(), recompute_));
            programs.push_back(ranks_.back().program);
        }
        return programs;
    }

    void Bind(size_t rank, const char* name, const std::vector<double>& data) {
        const ValueId id = world_.program(rank).Find(name);
        if (id != program::kNoValue) world_.at(rank, id) = Cast<Real>(data);
    }

    // Calls f(index in the whole tensor, index in this rank's slice) for each element of a weight.
    using ElementVisit = std::function<void(size_t whole, size_t mine)>;
    void ForEachElement(const program::Value& value, const ElementVisit& f) const {
        const TinyTensor& tensor = source_.data().at(value.slice.name);
        if (value.shape.rank == 3) {
            const auto elements = static_cast<size_t>(value.shape[1] * value.shape[2]);
            for (int64_t m = 0; m < value.shape[0]; ++m) {
                ForEachElement(program::MatrixOf(value, m), [&](size_t whole, size_t mine) {
                    f(whole, static_cast<size_t>(m) * elements + mine);
                });
            }
            return;
        }
        const int64_t rows = value.shape.rank == 2 ? value.shape[0] : 1;
        const int64_t cols = value.shape[value.shape.rank - 1];
        const bool vector = value.shape.rank == 1;
        const int64_t first_row = vector ? 0 : value.slice.row_begin;
        const int64_t first_col = vector ? value.slice.row_begin : value.slice.col_begin;
        for (int64_t row = 0; row < rows; ++row) {
            for (int64_t col = 0; col < cols; ++col) {
                f(static_cast<size_t>((first_row + row) * tensor.cols + first_col + col),
                  static_cast<size_t>(row * cols + col));
            }
        }
    }

    void BindWeights(size_t rank) {
        const program::Program& program = world_.program(rank);
        for (size_t i = 0; i < program.values.size(); ++i) {
            const program::Value& value = program.values[i];
            if (value.storage != program::Storage::kWeight) continue;
            const TinyTensor& tensor = source_.data().at(value.slice.name);
            std::vector<Real>& data = world_.at(rank, static_cast<ValueId>(i));
            data.resize(static_cast<size_t>(value.shape.Elements(0, 0)));
            ForEachElement(value, [&](size_t whole, size_t mine) {
                data[mine] = static_cast<Real>(tensor.data[whole]);
            });
        }
    }

    Tensors StageGradients(size_t first, double tolerance) {
        Tensors tensors;
        for (size_t rank = first; rank < first + static_cast<size_t>(layout_.tp); ++rank) {
            for (const program::WeightGradient& g : ranks_[rank].gradients) {
                const program::Value& weight = world_.program(rank).value(g.weight);
                std::vector<double>& whole = tensors[weight.slice.name];
                whole.resize(source_.data().at(weight.slice.name).data.size(), NAN);
                const std::vector<Real>& mine = world_.at(rank, g.gradient);
                ForEachElement(weight, [&](size_t at, size_t from) {
                    const double value = static_cast<double>(mine[from]);
                    if (!std::isnan(whole[at])) {
                        EXPECT_LE(std::abs(whole[at] - value), tolerance)
                            << weight.slice.name << " differs on rank " << rank;
                    }
                    whole[at] = value;
                });
            }
        }
        return tensors;
    }

    const model::Hyper hyper_;
    const TinySource& source_;
    model::Layout layout_;
    const program::Recompute recompute_;
    const bool balance_, row_shares_;
    std::vector<program::Differentiated> ranks_;
    World<Real> world_;
};

// The largest |a - b| of one tensor over the largest |b|.
inline double RelativeError(const std::vector<double>& a, const std::vector<double>& b) {
    EXPECT_EQ(a.size(), b.size());
    double error = 0, largest = 1e-300;
    for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
        error = std::isnan(a[i]) ? INFINITY : std::max(error, std::abs(a[i] - b[i]));
        largest = std::max(largest, std::abs(b[i]));
    }
    return error / largest;
}

}  // namespace weft::support
