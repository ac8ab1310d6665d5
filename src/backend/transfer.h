// Transfers: what the ops that move values between ranks (program/communication.h, IsCommunication)
// do with bytes that the host can reach. Every device has them from here; one whose memory the host
// cannot reach stages the operands.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/communicators.h"
#include "base/result.h"
#include "coll/comm.h"
#include "net/link.h"
#include "program/program.h"
#include "tensor/dtype.h"

namespace weft::backend {

// An operand, row-major. A vector is one row.
struct HostValue {
    std::byte* data = nullptr;
    DType dtype = DType::kF32;
    int64_t rows = 0, cols = 0;

    float* floats() const { return reinterpret_cast<float*>(data); }
    std::span<std::byte> bytes() const {
        return {data, static_cast<size_t>(RowBytes(dtype, rows * cols))};
    }
};

// in: the op's first input, out: its output; one of them is empty where the op has none. An
// all_reduce of float64 into float32 loses what `in` held. Where groups.wire is not kF64, sums that
// end as float32 cross as that; but rows of fewer than coll::kQ8Block values (a norm's squares)
// cross as they are. Errors: those of links.
Status RunTransfer(const program::Op& op, const HostValue& in, const HostValue& out,
                   const Communicators& groups, const net::OpTag& tag);

// Bytes that `values` values of `dtype` are when an all_reduce sends them once.
int64_t SumBytes(SumWire wire, DType dtype, int64_t values);

// Rows of T that each of `ranks` ranks has, as even as they can be; also for elements.
std::vector<int64_t> RowParts(int64_t rows, int64_t ranks);
// The first of this rank's.
int64_t FirstRow(int64_t rows, const coll::Comm& comm);

// all: parts[r] elements of each rank r, this rank's from `begin` on, kF32, kBF16 or kF16.
// share: as many elements as the own part; becomes, or where it `adds` grows by, the sum over ranks
// of the own part, each sum of narrow values rounded once. share may be the own part of `all`,
// which is lost otherwise. comm: null where there is one rank. Errors: those of links.
Status ReduceScatterInto(coll::Comm* comm, std::span<std::byte> all, DType dtype,
                         std::span<const int64_t> parts, int64_t begin, std::span<std::byte> share,
                         bool adds, const net::OpTag& tag);

}  // namespace weft::backend
