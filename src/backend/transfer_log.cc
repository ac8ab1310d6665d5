#include "backend/transfer_log.h"

#include "program/placement.h"

namespace weft::backend {

void TransferLog::Begin() {
    checksum_ = 0;
    all_reduce_us_.clear();
}

void TransferLog::Note(const program::Op& op, std::span<const std::byte> result,
                       const Communicators& groups, int64_t took_ns) {
    last_arrival_ns_ = 0;
    switch (op.kind()) {
        case program::OpKind::kAllReduce: {
            const coll::Timing timing = groups.tensor->last_timing();
            last_arrival_ns_ = timing.last_arrival_ns;
            const int64_t wire_ns = timing.end_ns - timing.last_arrival_ns;
            all_reduce_us_.push_back(static_cast<float>(wire_ns) * 1e-3f);
            waited_ns_ += timing.last_arrival_ns - timing.begin_ns;
            break;
        }
        case program::OpKind::kAllGather:
            last_arrival_ns_ = groups.tensor->last_timing().last_arrival_ns;
            break;
        case program::OpKind::kRecv:
            if (!program::IsFromHost(op)) waited_ns_ += took_ns;
            return;
        default: return;
    }
    if (checking_) checksum_ = Checksum64(result, checksum_);
}

}  // namespace weft::backend
