#include "backend/cpu/expert_store.h"

#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "backend/cpu/buffers.h"
#include "base/check.h"
#include "base/deadline.h"
#include "base/file.h"
#include "base/on_threads.h"
#include "hw/cpu.h"

namespace weft::backend {
namespace {

// The weight of a use halves in so many calls: a model of 60 layers forgets half in 17 tokens.
constexpr double kHalfLife = 1000;

}  // namespace

void ExpertStore::Add(program::ValueId ids, program::ValueId weight,
                      const kernels::PackedStack& stack) {
    // (Two choices that share a stack would drop each other's experts.)
    WEFT_CHECK(std::ranges::find(stacks_, weight, &Stack::weight) == stacks_.end());
    Choice& choice = choices_[ids];
    choice.stacks.push_back(stacks_.size());
    choice.experts.resize(static_cast<size_t>(stack.count));
    choice.expert_bytes += stack.stride_bytes;
    stacks_.push_back({weight, stack, nullptr});
    // Pages that were dropped must not come back as parts of huge pages.
    ::madvise(stack.data, static_cast<size_t>(stack.count * stack.stride_bytes), MADV_NOHUGEPAGE);
}

int64_t ExpertStore::TotalBytes() const {
    int64_t bytes = 0;
    for (const Stack& one : stacks_) bytes += one.matrices.count * one.matrices.stride_bytes;
    return bytes;
}

int64_t ExpertStore::LeastBytes() const {
    int64_t most = 0;
    for (const auto& [ids, choice] : choices_) {
        most = std::max(most, std::ssize(choice.experts) * choice.expert_bytes);
    }
    return most;
}

void ExpertStore::Load(program::ValueId weight, RowSource source) {
    const auto stack = std::ranges::find(stacks_, weight, &Stack::weight);
    WEFT_CHECK(stack != stacks_.end());
    stack->source = std::move(source);
}

Status ExpertStore::Bring(program::ValueId ids, const int32_t* begin) {
    Choice& choice = ChoiceOf(ids);
    ++now_;
    std::vector<Piece> pieces;
    int64_t missing = 0;
    for (size_t e = 0; e < choice.experts.size(); ++e) {
        if (begin[e] == begin[e + 1]) continue;
        Expert& expert = choice.experts[e];
        expert.use =
            1 + expert.use * std::exp2(static_cast<double>(expert.last - now_) / kHalfLife);
        expert.last = now_;
        ++(expert.here ? use_.hits : use_.misses);
        if (expert.here) continue;
        missing += choice.expert_bytes;
        for (const size_t stack : choice.stacks) {
            const int64_t step = PieceRows(stacks_[stack].matrices.Matrix(0));
            for (int64_t row = 0; row < stacks_[stack].matrices.rows; row += step) {
                pieces.push_back({stack, e, row});
            }
        }
    }
    if (pieces.empty()) return {};
    MakeRoom(missing, choice);
    const int64_t begin_ns = NowNs();
    const PinnedThread pinned(cores_);  // new threads inherit the cores of this one
    const Status read = OnThreads(std::min(kReaders, pieces.size()), pieces.size(),
                                  [&](size_t i) { return Read(pieces[i]); });
    use_.read_s += SecondsSince(begin_ns);
    use_.read_bytes += static_cast<uint64_t>(missing);
    for (const Piece& piece : pieces) {
        Expert& expert = choice.experts[piece.expert];
        if (!std::exchange(expert.here, true)) here_bytes_ += choice.expert_bytes;
    }
    if (!read.ok()) {
        for (const Piece& piece : pieces) Drop(choice, piece.expert);
    }
    return read;
}

// Drops the experts with the least use, but none that this call uses.
void ExpertStore::MakeRoom(int64_t bytes, const Choice& except) {
    if (here_bytes_ + bytes <= most_bytes_) return;
    struct Spare {
        double use;
        Choice* choice;
        size_t expert;
    };
    std::vector<Spare> spares;
    for (auto& [ids, choice] : choices_) {
        for (size_t e = 0; e < choice.experts.size(); ++e) {
            const Expert& expert = choice.experts[e];
            if (!expert.here || (&choice == &except && expert.last == now_)) continue;
            const double age = static_cast<double>(expert.last - now_) / kHalfLife;
            spares.push_back({expert.use * std::exp2(age), &choice, e});
        }
    }
    std::ranges::sort(spares, {}, &Spare::use);
    for (const Spare& one : spares) {
        if (here_bytes_ + bytes <= most_bytes_) return;
        Drop(*one.choice, one.expert);
    }
    WEFT_CHECK(here_bytes_ + bytes <= most_bytes_);
}

void ExpertStore::Drop(Choice& choice, size_t expert) {
    if (!std::exchange(choice.experts[expert].here, false)) return;
    here_bytes_ -= choice.expert_bytes;
    for (const size_t index : choice.stacks) {
        const kernels::PackedStack& all = stacks_[index].matrices;
        ::madvise(all.data + static_cast<int64_t>(expert) * all.stride_bytes,
                  static_cast<size_t>(all.stride_bytes), MADV_DONTNEED);
    }
}

Status ExpertStore::Read(const Piece& piece) const {
    const DirectReads direct;
    const Stack& stack = stacks_[piece.stack];
    const auto expert = static_cast<int64_t>(piece.expert);
    static thread_local std::vector<std::byte> raw;
    return LoadPiece(stack.matrices.Matrix(expert), piece.row, expert * stack.matrices.rows,
                     stack.source, pack_, raw);
}

}  // namespace weft::backend
