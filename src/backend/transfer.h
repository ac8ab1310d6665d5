// Transfers: runs the ops that move values between ranks (program/communication.h, IsCommunication)
// on bytes that the host can access. All devices use it. A device whose memory the host cannot
// access stages the operands.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/communicators.h"
#include "backend/step.h"
#include "base/result.h"
#include "coll/comm.h"
#include "net/link.h"
#include "program/program.h"
#include "tensor/dtype.h"

namespace weft::backend {

// An operand in host memory, row-major. A vector has one row.
struct HostValue {
    std::byte* data = nullptr;
    DType dtype = DType::kF32;
    int64_t rows = 0, cols = 0;

    float* floats() const { return reinterpret_cast<float*>(data); }
    std::span<std::byte> bytes() const {
        return {data, static_cast<size_t>(RowBytes(dtype, rows * cols))};
    }
};

// in: the op's first input; out: the op's output. For an op without input or output, the span is
// empty. An all_reduce of float64 into float32 overwrites `in`. If groups.wire is not kF64, float32
// addends are sent in that type. Rows in groups.prompt_rows are sent as groups.prompt_wire, by a
// steady algorithm (coll::Choice), so bf16 rounds a row equally in a step of any size. Rows of
// fewer than coll::kQ8Block values (such as a norm's squares) are sent unchanged. Errors: errors of
// links.
Status RunTransfer(const program::Op& op, const HostValue& in, const HostValue& out,
                   const Communicators& groups, const net::OpTag& tag);

// Size in bytes of `values` values of `dtype` as an all_reduce sends them.
int64_t SumBytes(SumWire wire, DType dtype, int64_t values);
// Size in bytes of an all_reduce of rows [0, rows) of a step.
int64_t SumBytes(const Communicators& groups, DType dtype, int64_t rows, int64_t cols);

// Sets `ranges` to the rows of prompts (StepSequence::prompt_rows) within rows [begin, begin +
// count) of a step, numbered from `begin`. Adjacent ranges are joined.
void FindPromptRows(std::span<const StepSequence> sequences, int64_t begin, int64_t count,
                    std::vector<RowRange>& ranges);

// The number of rows of each rank if `rows` rows are divided over `ranks` ranks as evenly as
// possible. Also used to divide elements.
std::vector<int64_t> RowParts(int64_t rows, int64_t ranks);
// The first row of this rank.
int64_t FirstRow(int64_t rows, const coll::Comm& comm);
// This rank's rows of a step (program::RowShare); all rows if no group divides them.
RowRange OwnRows(int64_t rows, const Communicators& groups);
// The step with the tokens, positions and noise of the rows that this rank has in a context group.
Step WithOwnTokens(const Step& step, const Communicators& groups);

// all: parts[r] elements for each rank r, of type kF32, kBF16 or kF16; this rank's part begins at
// `begin`.
// share: as many elements as this rank's part. The sum of this part over all ranks is stored in
// `share`, or added to it if `adds`. Sums of narrow types are rounded once. `share` may be this
// rank's part of `all`; the rest of `all` is overwritten.
// comm: null if there is one rank. Errors: errors of links.
Status ReduceScatterInto(coll::Comm* comm, std::span<std::byte> all, DType dtype,
                         std::span<const int64_t> parts, int64_t begin, std::span<std::byte> share,
                         bool adds, const net::OpTag& tag);

}  // namespace weft::backend
