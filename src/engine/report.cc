#include "engine/report.h"

#include <nlohmann/json.hpp>

#include "base/json.h"

namespace weft::engine {
namespace {

// One list of fields for both ways: visit(name, field).
template <typename Report, typename Visit>
void ReportFields(Report& r, const Visit& visit) {
    visit("rank", r.rank);
    visit("host", r.host);
    visit("device", r.device);
    visit("hardware", r.hardware);
    visit("stage", r.stage);
    visit("tensor_rank", r.tensor_rank);
    visit("share", r.share);
    visit("wire", r.wire);
    visit("step_s", r.step_s);
    visit("wait_s", r.wait_s);
    visit("energy_uj", r.energy_uj);
    visit("sensors", r.sensors);
    visit("sensor_joules", r.sensor_joules);
    visit("power_note", r.power_note);
    visit("rss_bytes", r.rss_bytes);
    visit("weight_bytes", r.weight_bytes);
    visit("kv_bytes", r.kv_bytes);
    visit("read_bytes", r.read_bytes);
    visit("received_bytes", r.received_bytes);
    visit("load_s", r.load_s);
    visit("all_reduces", r.all_reduces);
    visit("all_reduce_us", r.all_reduce_us);
}

}  // namespace

std::string ReportToJson(const RankReport& report) {
    nlohmann::json out;
    ReportFields(report, [&](const char* name, const auto& field) { out[name] = field; });
    return out.dump();
}

Result<RankReport> ReportFromJson(const std::string& text) {
    RankReport report;
    try {
        const nlohmann::json in = JsonOrDiscarded(text);
        ReportFields(report, [&](const char* name, auto& field) { in.at(name).get_to(field); });
    } catch (const nlohmann::json::exception& error) {
        return MakeError(ErrorCode::kCorrupt, "a rank's report: {}", error.what());
    }
    if (report.sensors.size() != report.sensor_joules.size()) {
        return MakeError(ErrorCode::kCorrupt, "the report of rank {}: {} sensors, but {} readings",
                         report.rank, report.sensors.size(), report.sensor_joules.size());
    }
    return report;
}

}  // namespace weft::engine
