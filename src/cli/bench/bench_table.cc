#include "cli/bench/bench_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/text.h"
#include "cli/terminal/output.h"

namespace weft::cli {
namespace {

struct Spread {
    double mean = 0, deviation = 0;  // sample standard deviation
};

Spread SpreadOf(const std::vector<double>& samples) {
    Spread spread;
    const double n = static_cast<double>(samples.size());
    spread.mean = std::accumulate(samples.begin(), samples.end(), 0.0) / n;
    double squares = 0;
    for (double x : samples) squares += (x - spread.mean) * (x - spread.mean);
    spread.deviation = samples.size() > 1 ? std::sqrt(squares / (n - 1)) : 0;
    return spread;
}

int64_t TokensOf(const BenchRow& row) {
    return row.seqs * (row.prompt + row.generate);
}

std::vector<double> RatesOf(const BenchRow& row) {
    std::vector<double> rates;
    const double tokens = static_cast<double>(TokensOf(row));
    for (double s : row.seconds) rates.push_back(tokens / s);
    return rates;
}

std::string TestName(const BenchRow& row) {
    const std::string depth = row.depth > 0 ? fmt::format(" @ d{}", row.depth) : "";
    const std::string seqs = row.seqs > 1 ? fmt::format(" x {}", row.seqs) : "";
    return row.prompt > 0 ? fmt::format("pp{}{}", row.prompt, seqs)
                          : fmt::format("tg{}{}{}", row.generate, depth, seqs);
}

constexpr const char* kPredictedCell = " {:>9} |";
constexpr const char* kPowerCells = " {:>8} | {:>9} |";
constexpr double kLeastPowerSeconds = 5;
// The value that llama-bench prints.
constexpr int kAllLayers = 99;

// Text of the table: "tcp", "tcp f32".
std::string Transport(const BenchRow& row) {
    const std::string& wire = row.prompt > 0 ? row.prompt_wire : row.wire;
    const bool plain = wire == "none" || wire == "f64";
    return plain ? row.transport : row.transport + " " + wire;
}

int64_t Nanoseconds(double seconds) {
    return std::llround(seconds * 1e9);
}

// Joules per token of the mean repetition. Without a sensor, NaN, which is null in JSON.
double JoulesPerToken(const BenchRow& row) {
    if (row.power->sensors.empty()) return std::nan("");
    const double repetitions = static_cast<double>(row.seconds.size());
    return row.power->watts() * row.power->seconds /
           (repetitions * static_cast<double>(TokensOf(row)));
}

void AddPower(const BenchRow& row, Json& json) {
    const BenchPower& power = *row.power;
    Json sensors = Json::array();
    for (const auto& [host, name, watts] : power.sensors) {
        sensors.push_back({{"host", host}, {"sensor", name}, {"watts", watts}});
    }
    json["avg_watts"] = power.watts();
    json["joules_per_token"] = JoulesPerToken(row);
    json["power_seconds"] = power.seconds;
    json["power_sensors"] = std::move(sensors);
    json["power_notes"] = power.notes;
}

Json TableJson(const BenchModel& model, const BenchRow& row) {
    std::vector<int64_t> samples_ns;
    for (double s : row.seconds) samples_ns.push_back(Nanoseconds(s));
    const Spread seconds = SpreadOf(row.seconds);
    const std::vector<double> rates = RatesOf(row);
    const Spread rate = SpreadOf(rates);
    Json json = {{"build_commit", "weft-" WEFT_VERSION},
                 {"build_number", 0},
                 {"cpu_info", model.cpu},
                 {"gpu_info", model.on_gpu() ? model.hardware : ""},
                 {"backends", model.backend},
                 {"model_filename", model.filename},
                 {"model_type", model.type},
                 {"model_size", model.size_bytes},
                 {"model_n_params", model.parameters},
                 {"n_batch", row.chunk},
                 {"n_ubatch", row.chunk},
                 {"n_threads", row.threads},
                 {"type_k", LowerCase(Info(row.kv_type.k).name)},
                 {"type_v", LowerCase(Info(row.kv_type.v).name)},
                 {"n_gpu_layers", model.on_gpu() ? kAllLayers : 0},
                 {"kernels", model.kernels},
                 {"tp", row.tp},
                 {"pp", row.pp},
                 {"split", row.split},
                 {"transport", row.transport},
                 {"wire", row.wire},
                 {"prompt_wire", row.prompt_wire},
                 {"n_prompt", row.prompt},
                 {"n_gen", row.generate},
                 {"n_depth", row.depth},
                 {"n_seqs", row.seqs},
                 {"test_time", row.time},
                 {"avg_ns", Nanoseconds(seconds.mean)},
                 {"stddev_ns", Nanoseconds(seconds.deviation)},
                 {"avg_ts", rate.mean},
                 {"stddev_ts", rate.deviation},
                 {"samples_ns", samples_ns},
                 {"samples_ts", rates}};
    if (row.power) AddPower(row, json);
    return json;
}

std::string CsvField(const Json& value) {
    std::string text = value.is_string() ? value.get<std::string>() : value.dump();
    std::string quoted = "\"";
    for (char c : text) {
        if (c == '"') quoted += '"';
        quoted += c;
    }
    return quoted + "\"";
}

}  // namespace

double BenchPower::watts() const {
    double sum = sensors.empty() ? std::nan("") : 0;
    for (const Sensor& sensor : sensors) sum += sensor.watts;
    return sum;
}

Result<BenchForm> ParseBenchForm(const std::string& name) {
    if (name == "md") return BenchForm::kMarkdown;
    if (name == "json") return BenchForm::kJson;
    if (name == "jsonl") return BenchForm::kJsonLines;
    if (name == "csv") return BenchForm::kCsv;
    return MakeError(ErrorCode::kUsage, "-o {}: expected md, json, jsonl or csv", name);
}

void BenchTable::Begin() {
    if (form_ != BenchForm::kMarkdown) return;
    PrintOut(
        "| {:<30} | {:>10} | {:>10} | {:<10} | {:>7} | {:>2} | {:>2} | {:<9} | {:>15} | "
        "{:>20} |{}\n",
        "model", "size", "params", "backend", "threads", "tp", "pp", "transport", "test", "t/s",
        (predicted_.empty() ? "" : fmt::format(kPredictedCell, "predicted")) +
            (power_ ? fmt::format(kPowerCells, "watts", "J/token") : ""));
    PrintOut(
        "| {:-<30} | {:->9}: | {:->9}: | {:-<10} | {:->6}: | {:->1}: | {:->1}: | {:-<9} | "
        "{:->14}: | {:->19}: |{}\n",
        "", "", "", "", "", "", "", "", "", "",
        std::string(predicted_.empty() ? "" : " --------: |") +
            (power_ ? " -------: | --------: |" : ""));
    FlushOut();
}

void BenchTable::SetDevice(const backend::DeviceInfo& device, bool cpus_too) {
    const bool mixed = cpus_too && device.backend != "CPU";
    model_.backend = device.backend + (mixed ? ",CPU" : "");
    model_.hardware = device.hardware;
    model_.kernels = device.kernels;
}

void BenchTable::Row(const BenchRow& row) {
    switch (form_) {
        case BenchForm::kMarkdown: MarkdownRow(row); break;
        case BenchForm::kJson: JsonRow(row, 2); break;
        case BenchForm::kJsonLines: JsonRow(row, -1); break;
        case BenchForm::kCsv: CsvRow(row); break;
    }
    ++rows_;
    FlushOut();
}

void BenchTable::End() {
    if (form_ == BenchForm::kJson) PrintOut("{}\n]\n", rows_ == 0 ? "[" : "");
    if (form_ == BenchForm::kMarkdown) {
        PrintOut("\nweft {}, {} kernels on {}\n", WEFT_VERSION, model_.kernels, model_.hardware);
        if (!predicted_.empty()) PrintOut("predicted: by 'weft plan' for {}\n", predicted_);
        for (const std::string& line : power_lines_) PrintOut("{}\n", line);
    }
}

void BenchTable::BreakOff(bool adds_error) {
    if (form_ != BenchForm::kJson) return;
    if (!adds_error) return End();
    if (rows_ > 0) KeepPartialJson({.before = ",\n", .after = "]\n"});
}

void BenchTable::MarkdownRow(const BenchRow& row) {
    const Spread rate = SpreadOf(RatesOf(row));
    const double parameters = static_cast<double>(model_.parameters);
    const std::string count = parameters >= 1e9 ? fmt::format("{:.2f} B", parameters * 1e-9)
                                                : fmt::format("{:.2f} M", parameters * 1e-6);
    PrintOut(
        "| {:<30} | {:>10} | {:>10} | {:<10} | {:>7} | {:>2} | {:>2} | {:<9} | {:>15} | "
        "{:>20} |{}\n",
        model_.type, BytesText(model_.size_bytes), count, model_.backend, row.threads, row.tp,
        row.pp, Transport(row), TestName(row),
        fmt::format("{:.2f} \u00b1 {:.2f}", rate.mean, rate.deviation),
        PredictedCell(row) + PowerCells(row));
    if (row.power) NotePower(*row.power);
}

std::string BenchTable::PredictedCell(const BenchRow& row) const {
    if (predicted_.empty()) return "";
    return fmt::format(kPredictedCell,
                       row.predicted_ts ? fmt::format("{:.2f}", *row.predicted_ts) : "none");
}

// The fields that all tables have, and the fields of this table.
Json BenchTable::Fields(const BenchRow& row) const {
    Json json = TableJson(model_, row);
    if (predicted_.empty()) return json;
    json["predicted_ts"] = row.predicted_ts ? Json(*row.predicted_ts) : Json();
    json["predicted_for"] = predicted_;
    return json;
}

std::string BenchTable::PowerCells(const BenchRow& row) const {
    if (!power_) return "";
    if (!row.power || row.power->sensors.empty()) return fmt::format(kPowerCells, "none", "none");
    return fmt::format(kPowerCells, fmt::format("{:.1f}", row.power->watts()),
                       fmt::format("{:.3f}", JoulesPerToken(row)));
}

void BenchTable::NotePower(const BenchPower& power) {
    std::vector<std::string> lines;
    for (const auto& sensor : power.sensors) {
        lines.push_back(fmt::format("power: host {}: {}", sensor.host, sensor.name));
    }
    for (const std::string& note : power.notes) lines.push_back("power: " + note);
    if (!power.sensors.empty() && power.seconds < kLeastPowerSeconds) {
        lines.push_back(
            fmt::format("power: a test shorter than {} s gives no reliable figure, because some "
                        "sensors update only once a second. Use a larger -p, -n or -r",
                        kLeastPowerSeconds));
    }
    for (std::string& line : lines) {
        if (std::ranges::count(power_lines_, line) == 0) power_lines_.push_back(std::move(line));
    }
}

void BenchTable::JsonRow(const BenchRow& row, int indent) {
    const std::string text = Fields(row).dump(indent, ' ', false, Json::error_handler_t::replace);
    const bool list = form_ == BenchForm::kJson;
    PrintOut("{}{}{}", !list ? "" : rows_ > 0 ? ",\n" : "[\n", text, list ? "" : "\n");
}

void BenchTable::CsvRow(const BenchRow& row) {
    std::vector<std::string> names, values;
    const Json json = Fields(row);
    for (const auto& [name, value] : json.items()) {
        if (value.is_array()) continue;
        names.push_back(name);
        values.push_back(CsvField(value));
    }
    if (rows_ == 0) PrintOut("{}\n", fmt::join(names, ","));
    PrintOut("{}\n", fmt::join(values, ","));
}

}  // namespace weft::cli
