#include "coll/measure.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "base/check.h"
#include "coll/wire.h"

namespace weft::coll {
namespace {

// Without a name, so errors name the phase of the job.
const net::OpTag kMeasureTag;

constexpr int64_t kFirstCalls = 2;
constexpr int64_t kCalibrationCalls = 50;
constexpr double kCalibrationSeconds = 0.02;
// Calls between two checks of the monitor, and of the clock.
constexpr int64_t kCallsALook = 256;
constexpr int64_t kCallsAPart = 256;

// Value of rank `rank`. Small integers, so that sums over any ranks in any order are exact. They
// repeat, so that the sums of many ranks are known without a loop for each value.
constexpr size_t kPeriod = 31;
float ValueOf(size_t at, int rank) {
    return static_cast<float>((at * 7 + static_cast<size_t>(rank) * 5) % kPeriod) - 15.0f;
}

// Repeats `call` on all ranks of the group as often as the first rank decides.
template <typename Call>
Result<Timings> Time(Comm& comm, const Budget& budget, const net::PeerMonitor* monitor,
                     const Call& call) {
    const auto repeat = [&](int64_t calls, std::vector<float>* us) -> Status {
        int64_t last_ns = NowNs();
        for (int64_t i = 0; i < calls; ++i) {
            WEFT_TRY(call());
            if (us != nullptr) {
                const int64_t now_ns = NowNs();
                us->push_back(static_cast<float>(now_ns - last_ns) * 1e-3f);
                last_ns = now_ns;
            }
            const bool look = i % kCallsALook == 0 && monitor != nullptr;
            if (look && monitor->Failed()) return monitor->FailureDuring(kMeasureTag);
        }
        return {};
    };
    // The seconds of a call, and from them the number of further calls; the same on all ranks.
    const auto agree = [&](int64_t& number) {
        return comm.Broadcast(std::as_writable_bytes(std::span(&number, 1)), 0, kMeasureTag);
    };
    const auto time = [&](int64_t calls) -> Result<int64_t> {
        const int64_t begin_ns = NowNs();
        WEFT_TRY(repeat(calls, nullptr));
        int64_t each_ns = (NowNs() - begin_ns) / calls;
        WEFT_TRY(agree(each_ns));
        return each_ns;
    };
    WEFT_ASSIGN(int64_t each_ns, time(kFirstCalls));
    if (static_cast<double>(each_ns) * 1e-9 * kCalibrationCalls < kCalibrationSeconds) {
        WEFT_ASSIGN(each_ns, time(kCalibrationCalls));
    }
    const double each_s = static_cast<double>(each_ns) * 1e-9;
    // Measures in parts: if another program uses the core, a call may take thousands of times
    // longer than the first calls. The first rank decides when to stop.
    const auto in_parts = [&](int64_t calls, std::vector<float>* us) -> Status {
        const int64_t begin_ns = NowNs();
        for (int64_t left = calls; left > 0;) {
            const int64_t part = std::min(left, kCallsAPart);
            WEFT_TRY(comm.Barrier(kMeasureTag));
            WEFT_TRY(repeat(part, us));
            left = IsSpent(budget, begin_ns) ? 0 : left - part;
            if (part == kCallsAPart) WEFT_TRY(agree(left));  // fewer: it was the last part
        }
        return {};
    };
    const int64_t calls = IterationsFor(budget, each_s);
    if (each_s < 1e-3) WEFT_TRY(in_parts(calls / 4 + 1, nullptr));
    std::vector<float> us;
    us.reserve(static_cast<size_t>(calls));
    WEFT_TRY(in_parts(calls, &us));
    return Summarize(us);
}

// Largest error of a sum of `ranks` such values: 0 with a full wire; else every rank's addend and
// every partial sum is rounded at most once, and none exceeds the sum of all.
double Tolerance(WireType wire, int ranks) {
    const double most = 15.0 * ranks;
    switch (wire) {
        case WireType::kFull: return 0;
        case WireType::kBF16: return std::ldexp(most, -8) * (2 * ranks);
        case WireType::kQ8: return kQ8Error * most * (2 * ranks);
        case WireType::kF16: return std::ldexp(most, -11) * (2 * ranks);
    }
    return 0;
}

// One collective over a vector of floats: the call, and the expected result.
class Subject {
  public:
    Subject(Comm& comm, const Question& question)
        : comm_(comm),
          question_(question),
          part_(question.bytes / sizeof(float) / static_cast<size_t>(comm.size())),
          data_(question.bytes / sizeof(float)),
          counts_(static_cast<size_t>(comm.size()), part_) {
        if (question.collective == Collective::kAllToAll) taken_.resize(data_.size());
        const bool bytes = question.collective == Collective::kAllGather ||
                           question.collective == Collective::kAllToAll;
        for (size_t& count : counts_) count *= bytes ? sizeof(float) : 1;
        for (size_t at = 0; at < sums_.size(); ++at) {
            for (int rank = 0; rank < comm.size(); ++rank) {
                sums_[at] += static_cast<double>(ValueOf(at, rank));
            }
        }
    }

    // Fills in this rank's values.
    void Fill() {
        for (size_t i = 0; i < data_.size(); ++i) {
            const bool mine = question_.collective != Collective::kAllGather || OwnerOf(i) == Me();
            data_[i] = mine ? ValueOf(i, comm_.rank()) : 0;
        }
    }
    // Zeros stay small in repeated sums.
    void Clear() { std::ranges::fill(data_, 0.0f); }

    Status Call() {
        const auto bytes = std::as_writable_bytes(std::span(data_));
        switch (question_.collective) {
            case Collective::kAllReduce:
                return comm_.AllReduce(std::span(data_), kMeasureTag, question_.choice);
            case Collective::kAllGather:
                return comm_.AllGather(bytes, counts_, kMeasureTag, question_.choice.algorithm);
            case Collective::kReduceScatter:
                return comm_.ReduceScatter(std::span(data_), counts_, kMeasureTag,
                                           question_.choice.algorithm);
            case Collective::kAllToAll:
                return comm_.AllToAll(bytes, counts_, std::as_writable_bytes(std::span(taken_)),
                                      counts_, kMeasureTag);
            case Collective::kBroadcast: return comm_.Broadcast(bytes, 0, kMeasureTag);
        }
        return {};
    }

    int64_t Errors() const {
        const std::vector<float>& got = taken_.empty() ? data_ : taken_;
        const double tolerance = Tolerance(question_.choice.wire, comm_.size());
        int64_t errors = 0;
        for (size_t i = 0; i < got.size(); ++i) {
            const double off = std::abs(static_cast<double>(got[i]) - Expected(i));
            errors += !(off <= tolerance) ? 1 : 0;
        }
        return errors;
    }

  private:
    size_t Me() const { return static_cast<size_t>(comm_.rank()); }
    size_t OwnerOf(size_t at) const { return part_ == 0 ? 0 : at / part_; }
    double SumAt(size_t at) const { return sums_[at % kPeriod]; }
    double Expected(size_t at) const {
        switch (question_.collective) {
            case Collective::kAllReduce: return SumAt(at);
            case Collective::kAllGather: return ValueOf(at, static_cast<int>(OwnerOf(at)));
            case Collective::kReduceScatter:
                return OwnerOf(at) == Me() ? SumAt(at) : ValueOf(at, comm_.rank());
            case Collective::kAllToAll:
                return ValueOf(Me() * part_ + at % part_, static_cast<int>(OwnerOf(at)));
            case Collective::kBroadcast: return ValueOf(at, 0);
        }
        return 0;
    }

    Comm& comm_;
    Question question_;
    size_t part_;  // floats of one rank
    std::vector<float> data_, taken_;
    std::vector<size_t> counts_;
    std::array<double, kPeriod> sums_{};  // of all ranks' values
};

}  // namespace

size_t WholeBytes(Collective collective, int ranks) {
    const bool whole = collective == Collective::kAllReduce || collective == Collective::kBroadcast;
    return sizeof(float) * (whole ? 1 : static_cast<size_t>(ranks));
}

Result<Figures> Measure(Comm& comm, const Question& question, const Budget& budget,
                        const net::PeerMonitor* monitor) {
    WEFT_CHECK(question.bytes > 0 &&
               question.bytes % WholeBytes(question.collective, comm.size()) == 0);
    Figures figures;
    Subject subject(comm, question);
    subject.Fill();
    WEFT_TRY(subject.Call());
    figures.errors = subject.Errors();
    subject.Clear();
    WEFT_ASSIGN(figures.timings, Time(comm, budget, monitor, [&] { return subject.Call(); }));
    return figures;
}

}  // namespace weft::coll
