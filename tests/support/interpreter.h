// Runs Programs op by op over plain vectors, following only the comments of program.h: the tests'
// own definition of a Program's meaning. Several ranks run in lock-step in one thread, so
// collectives are testable without links.
//
// World<double> is the oracle: naive loops in double. World<float> runs the same Program with
// backward ops and attention from kernels/reference.
//
// Attention takes the rows of its own sequence in this step, with or without caches, because steps
// begin at position 0. Integers (tokens, rows, targets) are held as Real, too.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <deque>
#include <map>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernels/reference/backward.h"
#include "program/program.h"
#include "support/float_ops.h"

namespace weft::support {

using program::Op;
using program::OpKind;
using program::Program;
using program::ValueId;

template <typename Real>
class World {
  public:
    using Vector = std::vector<Real>;

    // Rank r of the world is rank r % tensor_ranks of tensor group r / tensor_ranks.
    World(std::vector<Program> programs, int tensor_ranks)
        : programs_(std::move(programs)), tensor_ranks_(static_cast<size_t>(tensor_ranks)) {
        for (const Program& program : programs_) {
            values_.emplace_back(program.values.size());
            for (size_t i = 0; i < program.values.size(); ++i) {
                if (program.values[i].storage != program::Storage::kGradient) continue;
                values_.back()[i].assign(
                    static_cast<size_t>(program.values[i].shape.Elements(0, 0)), Real{0});
            }
        }
    }

    size_t size() const { return programs_.size(); }
    const Program& program(size_t rank) const { return programs_[rank]; }
    Vector& at(size_t rank, ValueId id) { return values_[rank][static_cast<size_t>(id)]; }

    // Runs one step on all ranks; returns the first error, or "".
    std::string Run(int64_t tokens, int64_t outputs, std::vector<kernels::Sequence> sequences) {
        tokens_ = tokens;
        outputs_ = outputs;
        sequences_ = std::move(sequences);
        next_.assign(size(), 0);
        mail_.clear();
        for (bool moved = true; moved;) {
            moved = false;
            for (size_t rank = 0; rank < size(); ++rank) moved = RunUntilCollective(rank) || moved;
            for (size_t rank = 0; rank < size(); rank += tensor_ranks_) {
                std::string problem;
                moved = RunCollective(rank, problem) || moved;
                if (!problem.empty()) return problem;
            }
        }
        for (size_t rank = 0; rank < size(); ++rank) {
            if (next_[rank] == programs_[rank].ops.size()) continue;
            return fmt::format("rank {} waits for ever at op {} ({})", rank, next_[rank],
                               OpName(programs_[rank].ops[next_[rank]].kind()));
        }
        return "";
    }

  private:
    static bool IsCollective(const Op& op) {
        return op.kind() == OpKind::kAllReduce || op.kind() == OpKind::kAllGather ||
               op.kind() == OpKind::kGatherRows || op.kind() == OpKind::kReduceScatterRows;
    }

    bool RunUntilCollective(size_t rank) {
        bool moved = false;
        for (; next_[rank] < programs_[rank].ops.size(); ++next_[rank]) {
            const Op& op = programs_[rank].ops[next_[rank]];
            if (IsCollective(op)) return moved;
            if (op.kind() == OpKind::kSend) {
                const auto peer = static_cast<size_t>(op.as<program::Send>().peer);
                mail_[{rank, peer}].push_back(at(rank, op.inputs[0]));
            } else if (op.kind() == OpKind::kRecv) {
                const auto peer = static_cast<size_t>(op.as<program::Recv>().peer);
                auto& box = mail_[{peer, rank}];
                if (box.empty()) return moved;
                at(rank, op.outputs[0]) = box.front();
                box.pop_front();
            } else if (op.kind() == OpKind::kSliceRows) {
                at(rank, op.outputs[0]) = OwnRows(rank, at(rank, op.inputs[0]));
            } else {
                Execute(rank, op);
            }
            moved = true;
        }
        return moved;
    }

    // Runs the collective if all ranks of the group have reached it.
    bool RunCollective(size_t first, std::string& problem) {
        std::vector<const Op*> ops;
        for (size_t rank = first; rank < first + tensor_ranks_; ++rank) {
            if (next_[rank] == programs_[rank].ops.size()) return false;
            ops.push_back(&programs_[rank].ops[next_[rank]]);
            if (!IsCollective(*ops.back())) return false;
            if (ops.back()->kind() != ops[0]->kind())
                problem = "ranks are at different collectives";
        }
        if (!problem.empty()) return false;
        const OpKind kind = ops[0]->kind();
        const bool sums = kind == OpKind::kAllReduce || kind == OpKind::kReduceScatterRows;
        const Vector result = sums                          ? SumOverRanks(first, ops, problem)
                              : kind == OpKind::kGatherRows ? Stack(first, ops)
                                                            : Gather(first, ops);
        for (size_t i = 0; i < ops.size(); ++i) {
            const bool slices = kind == OpKind::kReduceScatterRows;
            at(first + i, ops[i]->outputs[0]) = slices ? OwnRows(first + i, result) : result;
            ++next_[first + i];
        }
        return true;
    }

    // Rows of all ranks.
    Vector Stack(size_t first, const std::vector<const Op*>& ops) {
        Vector result;
        for (size_t i = 0; i < ops.size(); ++i) {
            const Vector& own = at(first + i, ops[i]->inputs[0]);
            result.insert(result.end(), own.begin(), own.end());
        }
        return result;
    }
    // Rows [T r / n, T (r + 1) / n) of tensor rank r of n.
    Vector OwnRows(size_t rank, const Vector& all) const {
        const auto n = static_cast<int64_t>(tensor_ranks_);
        const auto r = static_cast<int64_t>(rank % tensor_ranks_);
        const auto cols = static_cast<int64_t>(all.size()) / tokens_;
        return {all.begin() + tokens_ * r / n * cols, all.begin() + tokens_ * (r + 1) / n * cols};
    }

    Vector SumOverRanks(size_t first, const std::vector<const Op*>& ops, std::string& problem) {
        Vector sum = at(first, ops[0]->inputs[0]);
        for (size_t i = 1; i < ops.size(); ++i) {
            const Vector& addend = at(first + i, ops[i]->inputs[0]);
            if (addend.size() != sum.size()) {
                problem = fmt::format("all_reduce of {} elements on rank {}, {} on rank {}",
                                      sum.size(), first, addend.size(), first + i);
                return {};
            }
            for (size_t j = 0; j < sum.size(); ++j) sum[j] += addend[j];
        }
        return sum;
    }

    Vector Gather(size_t first, const std::vector<const Op*>& ops) {
        const auto rows = static_cast<size_t>(Rows(first, ops[0]->inputs[0]));
        Vector result;
        for (size_t row = 0; row < rows; ++row) {
            for (size_t i = 0; i < ops.size(); ++i) {
                const Vector& mine = at(first + i, ops[i]->inputs[0]);
                const size_t columns = mine.size() / rows;
                result.insert(result.end(), mine.begin() + static_cast<ptrdiff_t>(row * columns),
                              mine.begin() + static_cast<ptrdiff_t>((row + 1) * columns));
            }
        }
        return result;
    }

    int64_t Rows(size_t rank, ValueId id) const {
        const int64_t dim = programs_[rank].value(id).shape[0];
        if (const int64_t n = program::SharingRanks(dim); n > 0) {
            const auto r = static_cast<int64_t>(rank % tensor_ranks_);
            return tokens_ * (r + 1) / n - tokens_ * r / n;
        }
        return dim == program::kTokens ? tokens_ : dim == program::kOutputs ? outputs_ : dim;
    }
    // Number of elements of a value on this rank.
    size_t Count(size_t rank, ValueId id) const {
        program::Shape shape = programs_[rank].value(id).shape;
        shape.dims[0] = Rows(rank, id);
        return static_cast<size_t>(shape.Elements(tokens_, outputs_));
    }

    void Execute(size_t rank, const Op& op) {
        OpCall<Real> call;
        call.sequences = sequences_;
        for (ValueId id : op.outputs) {
            const bool accumulates = !op.inputs.empty() && op.inputs.back() == id;
            if (!accumulates && programs_[rank].value(id).storage != program::Storage::kGradient) {
                at(rank, id).assign(Count(rank, id), Real{0});
            }
            call.out.push_back(Matrix<Real>{at(rank, id), Rows(rank, id)});
        }
        for (ValueId id : op.inputs) {
            call.in.push_back(Matrix<Real>{at(rank, id), Rows(rank, id)});
        }
        op.attributes.Visit([&](const auto& attributes) { Apply(attributes, call); });
    }

    std::vector<Program> programs_;
    size_t tensor_ranks_;
    std::vector<std::vector<Vector>> values_;                       // by rank, then ValueId
    std::vector<size_t> next_;                                      // next op of each rank
    std::map<std::pair<size_t, size_t>, std::deque<Vector>> mail_;  // from, to
    int64_t tokens_ = 0, outputs_ = 0;
    std::vector<kernels::Sequence> sequences_;
};

}  // namespace weft::support
