#include "engine/report.h"

#include "base/field_codec.h"

namespace weft::engine {
namespace {

constexpr auto kReportFields = [](auto& report, auto& visit) {
    visit("rank", report.rank);
    visit("host", report.host);
    visit("device", report.device);
    visit("hardware", report.hardware);
    visit("stage", report.stage);
    visit("tensor_rank", report.tensor_rank);
    visit("share", report.share);
    visit("wire", report.wire);
    visit("prompt_wire", report.prompt_wire);
    visit("step_s", report.step_s);
    visit("wait_s", report.wait_s);
    visit("energy_uj", report.energy_uj);
    visit("sensors", report.sensors);
    visit("sensor_joules", report.sensor_joules);
    visit("power_note", report.power_note);
    visit("rss_bytes", report.rss_bytes);
    visit("weight_bytes", report.weight_bytes);
    visit("kv_bytes", report.kv_bytes);
    visit("read_bytes", report.read_bytes);
    visit("received_bytes", report.received_bytes);
    visit("drive_hits", report.drive_hits);
    visit("drive_misses", report.drive_misses);
    visit("drive_bytes", report.drive_bytes);
    visit("drive_s", report.drive_s);
    visit("drive_wait_s", report.drive_wait_s);
    visit("drive_ahead", report.drive_ahead);
    visit("drive_ahead_used", report.drive_ahead_used);
    visit("load_s", report.load_s);
    visit("all_reduces", report.all_reduces);
    visit("all_reduce_us", report.all_reduce_us);
};

}  // namespace

std::string ReportToJson(const RankReport& report) {
    return EncodeFields(report, kReportFields);
}

Result<RankReport> ReportFromJson(const std::string& text) {
    RankReport report;
    WEFT_TRY(DecodeFields("a rank's report", text, kReportFields, report));
    if (report.sensors.size() != report.sensor_joules.size()) {
        return MakeError(ErrorCode::kCorrupt, "the report of rank {}: {} sensors, but {} readings",
                         report.rank, report.sensors.size(), report.sensor_joules.size());
    }
    return report;
}

}  // namespace weft::engine
