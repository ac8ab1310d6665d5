#include "plan/link.h"

#include <algorithm>

namespace weft::plan {
namespace {

// Wires by the nominal speed of their port.
struct Nominal {
    LinkKind kind;
    double gigabits;
    const char* wire;
};
constexpr Nominal kNominal[] = {
    {LinkKind::kTcp, 1, "1gbe"},         {LinkKind::kTcp, 2.5, "2.5gbe"},
    {LinkKind::kTcp, 5, "5gbe"},         {LinkKind::kTcp, 10, "10gbe"},
    {LinkKind::kTcp, 100, "tcp"},        {LinkKind::kRoce, 100, "roce"},
    {LinkKind::kRoce, 200, "roce-200g"}, {LinkKind::kInfiniBand, 100, "ib-100g"},
    {LinkKind::kThunderbolt, 80, "tb5"}};

// The fastest of this kind that is not faster than `gigabits`; if all are faster, the slowest.
const Nominal& Below(LinkKind kind, double gigabits) {
    const Nominal* below = nullptr;
    for (const Nominal& row : kNominal) {
        if (row.kind != kind) continue;
        if (below == nullptr || row.gigabits <= gigabits) below = &row;
    }
    return *below;
}

const Nominal& Fastest(LinkKind kind) {
    const Nominal* fastest = nullptr;
    for (const Nominal& row : kNominal) {
        if (row.kind == kind) fastest = &row;
    }
    return *fastest;
}

}  // namespace

Result<Wire> WireOf(const Library& library, LinkKind kind, double gigabits) {
    const Nominal& nominal = Below(kind, gigabits);
    WEFT_ASSIGN(Wire wire, library.FindWire(nominal.wire));
    wire.bandwidth.value *= gigabits / nominal.gigabits;
    if (kind == LinkKind::kTcp) {
        WEFT_ASSIGN(const Wire most, library.FindWire(Fastest(kind).wire));
        wire.bandwidth.value = std::min(wire.bandwidth.value, most.bandwidth.value);
    } else if (kind != LinkKind::kThunderbolt) {
        WEFT_ASSIGN(const Wire tcp, WireOf(library, LinkKind::kTcp, gigabits));
        wire.bandwidth.value = std::max(wire.bandwidth.value, tcp.bandwidth.value);
    }
    return wire;
}

}  // namespace weft::plan
