// The text of a machine file.
#include <fmt/format.h>

#include "plan/measure.h"

namespace weft::plan {
namespace {

using OrderedJson = nlohmann::ordered_json;

std::string QuantityText(double value, Unit unit) {
    switch (unit) {
        case Unit::kBytes: return fmt::format("{:.6g} GB", value * 1e-9);
        case Unit::kRate: return fmt::format("{:.6g} GB/s", value * 1e-9);
        case Unit::kCompute: return fmt::format("{:.6g} GFLOP/s", value * 1e-9);
        case Unit::kTime: return fmt::format("{:.6g} us", value * 1e6);
        case Unit::kPower: return fmt::format("{:.4g} W", value);
        case Unit::kPrice: return fmt::format("{:.6g} EUR", value);
        case Unit::kShare: return fmt::format("{:.6g}", value);
        case Unit::kSpeed: return fmt::format("{:.6g} tok/s", value);
    }
    return "";
}

OrderedJson FigureJson(const Figure& figure, Unit unit) {
    return {
        {"is", QuantityText(figure.value, unit)}, {"mark", "measured"}, {"source", figure.source}};
}

OrderedJson LinkJson(const Figure& bandwidth, const Figure& latency) {
    return {{"bandwidth", FigureJson(bandwidth, Unit::kRate)},
            {"latency", FigureJson(latency, Unit::kTime)}};
}

OrderedJson CurveJson(const Measured::Curve& curve, Unit unit) {
    OrderedJson json;
    for (const auto& [x, value] : curve) json[fmt::format("{:.0f}", x)] = QuantityText(value, unit);
    return json;
}

OrderedJson MeasuredJson(const Measured& measured) {
    OrderedJson products;
    for (const auto& [type, curve] : measured.products) {
        products[std::string(Info(type).name)] = CurveJson(curve, Unit::kCompute);
    }
    OrderedJson json = {{"ranks", measured.ranks},
                        {"op", FigureJson(measured.op, Unit::kTime)},
                        {"step", FigureJson(measured.step, Unit::kTime)},
                        {"cache", FigureJson(measured.cache, Unit::kRate)},
                        {"attention", FigureJson(measured.attention, Unit::kCompute)},
                        {"products", std::move(products)}};
    if (measured.hop) json["hop"] = FigureJson(*measured.hop, Unit::kTime);
    if (measured.all_reduce.empty()) return json;
    json["sync"] = FigureJson(measured.sync, Unit::kTime);
    json["all_reduce"] = CurveJson(measured.all_reduce, Unit::kTime);
    return json;
}

}  // namespace

std::string MachineFileText(const Machine& machine) {
    OrderedJson json = {{"about", machine.about}, {"devices", machine.devices}};
    json["memory"] = FigureJson(machine.memory, Unit::kBytes);
    json["pool"] = PoolText(machine.pool);
    json["threads"] = machine.threads;
    json["bandwidth"] = FigureJson(machine.bandwidth, Unit::kRate);
    json["compute"] = FigureJson(machine.compute, Unit::kCompute);
    if (!machine.within.empty()) {
        const LinkTier& tier = machine.within.back();
        OrderedJson host = {{"ranks", tier.ranks}};
        host.update(LinkJson(tier.bandwidth, tier.latency));
        json["tiers"] = {{"host", std::move(host)}};
    }
    if (machine.own_wire) {
        OrderedJson wire = {{"about", machine.own_wire->about}};
        wire.update(LinkJson(machine.own_wire->bandwidth, machine.own_wire->latency));
        json["wire"] = std::move(wire);
    }
    if (machine.watts_idle) json["watts_idle"] = FigureJson(*machine.watts_idle, Unit::kPower);
    if (machine.watts_busy) json["watts_busy"] = FigureJson(*machine.watts_busy, Unit::kPower);
    if (machine.measured) json["measured"] = MeasuredJson(*machine.measured);
    return json.dump(2) + "\n";
}

}  // namespace weft::plan
