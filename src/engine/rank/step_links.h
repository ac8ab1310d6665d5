// StepLinks: links between the pipeline stages of an inference job. The last stage computes the
// logits. Rank 0 requests the least data that each request needs (RowRequest): the best logits of a
// row, or a token that the last stage samples. The last stage sends all logits of a row only for
// penalties, a grammar, log-probabilities, or judged drafts (DraftOptions::judged).
//
// The logits travel from the last stage to rank 0 in one message with one answer per row. If a
// row's answer is not all logits, the row is undefined in the Program's value on rank 0, and Find
// returns the answer.
// Errors: errors of links; kCorrupt: an invalid answer, or a value without one row for each
// request. Thread: one caller.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "backend/communicators.h"
#include "backend/top.h"
#include "coll/comm.h"
#include "engine/rank/step_message.h"
#include "engine/sampling/logits_row.h"
#include "engine/sampling/sampler.h"

namespace weft::engine {

class StepLinks final : public backend::StageLinks {
  public:
    explicit StepLinks(coll::Comm& comm) : comm_(comm), sampler_(SamplerOptions()) {}

    // The next logits sent to rank 0 have one row for each of `asks`. Call it on both ranks. If
    // `asks` is empty, all logits of all rows are sent.
    void Expect(std::span<const RowRequest> asks) { asks_.assign(asks.begin(), asks.end()); }
    Status Send(std::span<const std::byte> data, int peer, const net::OpTag& tag) override;
    Status Recv(std::span<std::byte> data, int peer, const net::OpTag& tag) override;

    // Rank 0: the answer for a row of the last received value. Returns null if the value has all
    // logits of the row.
    const RowAnswer* Find(int64_t row) const;

  private:
    // Logits in each row of a value of `bytes`. kCorrupt: the rows do not fit asks_.
    Result<size_t> Columns(size_t bytes) const;
    void Pack(std::span<const std::byte> data, size_t columns);
    Status Unpack(std::span<std::byte> data, size_t columns);

    coll::Comm& comm_;
    Sampler sampler_;
    std::vector<RowRequest> asks_;
    std::vector<std::byte> message_;
    std::vector<RowAnswer> answers_;  // of the last received value; empty: it has all logits
};

}  // namespace weft::engine
