// StepLinks: links between the pipeline stages of an inference job. The last stage makes the
// logits, and rank 0 asks for the least that each request needs (RowAsk): the best logits of a row,
// or a token that the last stage samples. All logits of a row travel only for penalties, a grammar,
// log-probabilities, or judged drafts.
//
// A value from the last stage to rank 0 is one message with one answer per row. If a row's answer
// is not all logits, the row is undefined in the Program's value on rank 0; Find returns the
// answer.
// Errors: those of links; kCorrupt: an invalid answer, or a value without one row for each request.
// Thread: one caller.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "backend/communicators.h"
#include "backend/top.h"
#include "coll/comm.h"
#include "engine/logits_row.h"
#include "engine/sampler.h"
#include "engine/step_message.h"

namespace weft::engine {

class StepLinks final : public backend::StageLinks {
  public:
    explicit StepLinks(coll::Comm& comm) : comm_(comm), sampler_(SamplerOptions()) {}

    // The next values to and from rank 0 have one row for each of `asks`. Empty: values travel
    // whole.
    void Expect(std::span<const RowAsk> asks) { asks_.assign(asks.begin(), asks.end()); }
    Status Send(std::span<const std::byte> data, int peer, const net::OpTag& tag) override;
    Status Recv(std::span<std::byte> data, int peer, const net::OpTag& tag) override;

    // Rank 0: the answer for a row of the last received value. Null: the row is whole.
    const RowAnswer* Find(int64_t row) const;

  private:
    // Logits in each row of a value of `bytes`. kCorrupt: the rows do not fit asks_.
    Result<size_t> Columns(size_t bytes) const;
    void Pack(std::span<const std::byte> data, size_t columns);
    Status Unpack(std::span<std::byte> data, size_t columns);

    coll::Comm& comm_;
    Sampler sampler_;
    std::vector<RowAsk> asks_;
    std::vector<std::byte> message_;
    std::vector<RowAnswer> answers_;  // of the last received value; empty: all rows are whole
};

}  // namespace weft::engine
