// Experts whose weights stay on the drive, for models that are larger than memory
// (CompileOptions::drive). A stack of experts keeps its place in the address space. Memory backs
// only the experts that were used last: a step brings the experts that its rows chose, and drops
// others. Weights are read past the page cache (base/file.h, DirectReads), so memory stays within
// the limit.
//
// Thread: one caller.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "backend/executable.h"
#include "kernels/experts.h"
#include "program/program.h"

namespace weft::backend {

// Bytes to which the matrices of a stack on the drive are padded, so that each has pages of its
// own.
inline constexpr int64_t kDrivePage = 4096;
// Reads at a time: a drive needs several requests to reach its rate, and threads also pack what
// they read. kReaderBytes: memory of one of these threads.
inline constexpr size_t kReaders = 16;
inline constexpr int64_t kReaderBytes = 2 << 20;

class ExpertStore {
  public:
    using Pack = decltype(kernels::Kernels::pack);
    // cores: threads that read run on these; empty: on any.
    ExpertStore(Pack pack, std::vector<int> cores) : pack_(pack), cores_(std::move(cores)) {}

    // The stacks that ops of one choice of experts read. `ids`: the value with the choice.
    void Add(program::ValueId ids, program::ValueId weight, const kernels::PackedStack& stack);
    bool empty() const { return stacks_.empty(); }
    // Bytes of all experts, and of the choice with the largest ones: the memory needed at least.
    int64_t TotalBytes() const;
    int64_t LeastBytes() const;
    // most_bytes: memory for experts; at least LeastBytes().
    void SetLimit(int64_t most_bytes) { most_bytes_ = most_bytes; }
    int64_t limit() const { return most_bytes_; }

    // Keeps the source, which is read during steps. Errors: none here.
    void Load(program::ValueId weight, RowSource source);
    // Brings the experts e of the choice with begin[e] < begin[e + 1] (kernels::ExpertPlan).
    // Errors: those of the source.
    Status Bring(program::ValueId ids, const int32_t* begin);

    const DriveUse& use() const { return use_; }

  private:
    struct Stack {
        program::ValueId weight = program::kNoValue;
        kernels::PackedStack matrices;
        RowSource source;
    };
    // An expert of a choice: its matrices in all stacks of the choice.
    struct Expert {
        bool here = false;
        double use = 0;  // decays with each step in which the expert is not used
        int64_t last = 0;
    };
    struct Choice {
        std::vector<size_t> stacks;
        std::vector<Expert> experts;
        int64_t expert_bytes = 0;
    };
    // Rows of an expert's matrix that one thread reads (LoadPiece).
    struct Piece {
        size_t stack, expert;
        int64_t row;
    };
    Choice& ChoiceOf(program::ValueId ids) { return choices_.at(ids); }
    void MakeRoom(int64_t bytes, const Choice& except);
    void Drop(Choice& choice, size_t expert);
    Status Read(const Piece& piece) const;

    const Pack pack_;
    const std::vector<int> cores_;
    std::vector<Stack> stacks_;
    std::map<program::ValueId, Choice> choices_;
    int64_t most_bytes_ = 0, here_bytes_ = 0;
    int64_t now_ = 0;  // number of calls of Bring
    DriveUse use_;
};

}  // namespace weft::backend
