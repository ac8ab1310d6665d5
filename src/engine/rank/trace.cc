#include "engine/rank/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace weft::engine {
namespace {

constexpr int kCompute = 0, kWait = 1, kWire = 2;

struct Event {
    std::string_view name;
    int rank, track;
    int64_t begin_ns, end_ns;
    int32_t op;
    int64_t step;
};

void AppendEvent(const Event& e, std::string& events) {
    if (e.end_ns <= e.begin_ns) return;
    fmt::format_to(std::back_inserter(events),
                   "{}{{\"name\":\"{}\",\"ph\":\"X\",\"pid\":{},\"tid\":{},\"ts\":{:.3f},"
                   "\"dur\":{:.3f},\"args\":{{\"op\":{},\"step\":{}}}}}",
                   events.empty() ? "" : ",\n", e.name, e.rank, e.track,
                   static_cast<double>(e.begin_ns) * 1e-3,
                   static_cast<double>(e.end_ns - e.begin_ns) * 1e-3, e.op, e.step);
}

}  // namespace

void AppendTrace(const program::Program& program, int64_t number,
                 std::span<const backend::OpTiming> timings, int rank, std::string& events) {
    for (const backend::OpTiming& t : timings) {
        const program::Op& op = program.ops[static_cast<size_t>(t.op)];
        const program::ValueId named = op.outputs.empty() ? op.inputs[0] : op.outputs[0];
        const std::string name =
            fmt::format("{} {}", program::OpName(op.kind()), program.value(named).name);
        Event event{name, rank, kCompute, t.begin_ns, t.end_ns, t.op, number};
        if (t.last_arrival_ns == 0) {
            event.track = op.Is(program::Trait::kMessage) ? kWire : kCompute;
            AppendEvent(event, events);
            continue;
        }
        const int64_t arrived = std::clamp(t.last_arrival_ns, t.begin_ns, t.end_ns);
        AppendEvent({name, rank, kWait, t.begin_ns, arrived, t.op, number}, events);
        AppendEvent({name, rank, kWire, arrived, t.end_ns, t.op, number}, events);
    }
}

std::string TraceFile(const std::vector<std::string>& events_of_ranks) {
    std::string text = std::string(kTraceBegin) + "\n";
    const char* separator = "";
    for (size_t rank = 0; rank < events_of_ranks.size(); ++rank) {
        text += fmt::format(
            "{}{{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":{},\"args\":"
            "{{\"name\":\"rank {}\"}}}}",
            separator, rank, rank);
        separator = ",\n";
        for (const auto& [track, name] :
             {std::pair(kCompute, "compute"), std::pair(kWait, "wait"), std::pair(kWire, "wire")}) {
            text += fmt::format(
                ",\n{{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":{},\"tid\":{},"
                "\"args\":{{\"name\":\"{}\"}}}}",
                rank, track, name);
        }
        if (!events_of_ranks[rank].empty()) text += ",\n" + events_of_ranks[rank];
    }
    return text + "\n]}\n";
}

}  // namespace weft::engine
