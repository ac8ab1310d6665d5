// The one small message with which rank 0 tells the others what the next step works on.
//
// Without pipeline stages it is a broadcast. With them it goes from stage to stage, ahead of the
// rows: a rank that is several steps behind rank 0 then holds up the one before it, as it does with
// rows, and never rank 0 while that has results of older steps to take.
// Fixed size while it fits (a decode step of a few sequences does), so that a step costs one
// broadcast; longer ones follow in a second. Layout: Head, then tokens, positions, output rows,
// copies of pages, asks, sequences with their adapters, slots of state and pages, all 32-bit.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "backend/step.h"
#include "base/result.h"
#include "coll/comm.h"
#include "engine/row_ask.h"
#include "net/link.h"

namespace weft::engine {

enum class StepKind : int32_t {
    kRun,     // run the step
    kStop,    // the job is over
    kReport,  // every rank tells how it is
    kGuess,   // run the draft head over the rows of the last step, of which these are the next
              // tokens
    kGuessOn,  // run it again; row i is behind output row i of its last run
};

// A step with storage of its own; view() is valid as long as it is unchanged.
struct StepData {
    struct Sequence {
        int32_t row_begin = 0, row_count = 0, position = 0;
        std::vector<int32_t> pages;
        int32_t adapter = 0;  // of the job's, from 1; 0: none
        // As backend::StepSequence has them.
        int32_t state_from = -1, state_to = -1;
        std::vector<backend::StateWrite> state_writes{};
    };
    StepKind kind = StepKind::kRun;
    int64_t number = 0;
    std::vector<int32_t> tokens, positions, output_rows;
    std::vector<Sequence> sequences;
    std::vector<backend::PageCopy> copies;
    // One for each output row. Empty: rank 0 needs all logits.
    std::vector<RowAsk> asks;
    // For the device of rank 0, not sent: what will be asked of the output rows' logits (which
    // value that is, the rank knows).
    backend::WantedRows wanted;

    // The next step, with no rows yet.
    void Clear();
    // Rows of one more sequence, whose first is at `position`; `sequence` has its pages.
    void Append(std::span<const int32_t> new_tokens, int64_t position, Sequence sequence);
    // Fills `views` and returns the step that refers to them and to this.
    backend::Step View(std::vector<backend::StepSequence>& views) const;
};

// Carries steps from rank 0 to all others of `world`. A world of one does nothing.
class StepChannel {
  public:
    // From whom a rank has its steps, and to whom it hands them on. Nobody: all have them from rank
    // 0, by broadcast.
    struct Route {
        int from = 0;
        std::vector<int> to;
    };
    // Of a rank where `tp` ranks of each of `pp` stages stand one after another: steps go to those
    // of rank 0's stage, and from each rank to its like in the next stage.
    static Route RouteOf(int rank, int tp, int pp);

    explicit StepChannel(coll::Comm* world) : world_(world) {}
    StepChannel(coll::Comm* world, Route route)
        : world_(world), route_(std::move(route)), by_stages_(true) {}
    Status Send(const StepData& step);
    // The next one; it is handed on already. Errors: those of the links; kCorrupt where the message
    // makes no sense.
    Status Receive(StepData& step);

  private:
    static constexpr size_t kInlineWords = 256;
    Status Bring(std::span<int32_t> words, const net::OpTag& tag);
    Status HandOn(const net::OpTag& tag);

    coll::Comm* world_;
    Route route_;
    bool by_stages_ = false;
    std::array<int32_t, kInlineWords> inline_{};
    std::vector<int32_t> words_;
};

// Apart for tests and fuzzing: words <-> step. Decode checks every count against what is there.
void EncodeStep(const StepData& step, std::vector<int32_t>& words);
Status DecodeStep(std::span<const int32_t> words, StepData& step);

}  // namespace weft::engine
