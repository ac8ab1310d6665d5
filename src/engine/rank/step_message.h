// The message in which rank 0 describes the next step to the other ranks.
//
// Without pipeline stages, rank 0 broadcasts the message. With stages, each stage forwards the
// message to the next stage, before the rows of the step. So a stage that is several steps late
// delays the stage before it, but not rank 0, which may have to receive older results meanwhile.
// The message has a fixed size if the step fits (as a decode step of a few sequences does), so a
// step costs one broadcast; the remaining part of a longer step follows in a second message.
// Layout: Head, then tokens, positions, output rows, page copies, asks, sequences with their
// adapters, state slots and pages, keyed pages, the name's bytes in whole words, all 32-bit.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backend/step.h"
#include "base/result.h"
#include "coll/comm.h"
#include "engine/page_store/page_key.h"
#include "engine/rank/row_ask.h"
#include "net/link.h"

namespace weft::engine {

enum class StepKind : int32_t {
    kRun,      // run the step
    kStop,     // end the job
    kReport,   // every rank sends its report
    kGuess,    // run the draft head on the last step's rows; tokens: for each row, the token after
               // it
    kGuessOn,  // run the head again; row i follows output row i of its last run. A DFlash head
               // drafts blocks: the last token of each sequence and mask tokens
    kSave,     // save `keyed` pages without a step
    kRestore,  // fill `keyed` pages with their kept contents
    // Slots (rank_slots.cc). The first entry of `keyed` has the key SlotHead::set.
    kSaveSlot,  // save the other entries of `keyed` in the file `name`
    kLoadSlot,  // keep the entries of the file `name` by the keys of the other entries of `keyed`
};

// A step that owns its data. The result of View is valid until the step changes.
struct StepData {
    struct Sequence {
        int32_t row_begin = 0, row_count = 0, position = 0;
        std::vector<int32_t> pages;
        int32_t adapter = 0;  // number of the job's adapter, from 1; 0: none
        // As in backend::StepSequence.
        int32_t state_from = -1, state_to = -1;
        std::vector<backend::StateWrite> state_writes{};
        int32_t prompt_rows = 0, second = -1;
    };
    StepKind kind = StepKind::kRun;
    int64_t number = 0;
    std::vector<int32_t> tokens, positions, output_rows;
    std::vector<Sequence> sequences;
    std::vector<backend::PageCopy> copies;
    // One for each output row. Empty if rank 0 needs all logits of all output rows.
    std::vector<RowRequest> asks;
    // Pages to save outside of the device's memory before the step runs, or to restore
    // (page_store/rank_pages.h).
    std::vector<KeyedPage> keyed;
    std::string name;
    // Not sent; for rank 0's device: the part of the output rows' logits that rank 0 will read.
    // Rank sets wanted.value.
    backend::WantedRows wanted;

    // Resets to a step without rows.
    void Clear();
    // Appends rows of a sequence, of which the first is at `position`. sequence: the sequence's
    // pages, adapter and state slots.
    void Append(std::span<const int32_t> new_tokens, int64_t position, Sequence sequence);
    // Fills `views`; the returned step refers to `views` and to this object.
    backend::Step View(std::vector<backend::StepSequence>& views) const;
};

// Sends steps from rank 0 to all other ranks of `world`. Does nothing if there are no others.
class StepChannel {
  public:
    // With pipeline stages: the rank from which this rank receives steps, and the ranks to which it
    // forwards them.
    struct Route {
        int from = 0;
        std::vector<int> to;
    };
    // Route for `pp` stages of `tp` ranks each, in rank order: rank 0 sends to the other ranks of
    // its stage, and each rank to the same place in the next stage.
    static Route RouteOf(int rank, int tp, int pp);

    explicit StepChannel(coll::Comm* world) : world_(world) {}
    StepChannel(coll::Comm* world, Route route)
        : world_(world), route_(std::move(route)), by_stages_(true) {}
    Status Send(const StepData& step);
    // Receives and forwards the next step. Errors: errors of the links; kCorrupt: an invalid
    // message.
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

// Encoding without sending, also for tests and fuzzing. DecodeStep checks every count against the
// size of `words`.
void EncodeStep(const StepData& step, std::vector<int32_t>& words);
Status DecodeStep(std::span<const int32_t> words, StepData& step);

}  // namespace weft::engine
