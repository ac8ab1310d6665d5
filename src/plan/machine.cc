#include "plan/machine.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>

#include "base/file.h"
#include "base/json.h"
#include "base/nearest_word.h"
#include "plan/host_part.h"
#include "plan/machine_names.h"
#include "plan/weft_rates.h"

namespace weft::plan {
namespace {

// kMostNamedDevices: in --machines. Machine files may have more.
constexpr int kMostHosts = 16384, kMostDevices = 1024, kMostNamedDevices = 64;
constexpr size_t kMostFileBytes = size_t{1} << 20;
// EUR for the desktop around a card; a second card does not need another one. Guessed.
constexpr double kDesktopPrice = 600;

struct PoolName {
    const char* name;
    backend::MemoryKind kind;
};
constexpr PoolName kPools[] = {{"device", backend::MemoryKind::kDevice},
                               {"unified", backend::MemoryKind::kUnified},
                               {"host", backend::MemoryKind::kHost}};

const char* PoolText(backend::MemoryKind kind) {
    return std::ranges::find(kPools, kind, &PoolName::kind)->name;
}

// The link between devices of a host: the file's, or PCIe through host memory, which Weft's device
// backends use.
LinkTier PcieOf(int devices) {
    const std::string source = "PCIe 4.0, 16 lanes, by way of the host";
    return {devices, {kPcieBytesPerS, Mark::kFitted, source}, {10e-6, Mark::kGuessed, source}};
}

// "1002:1586": vendor and device, in lowercase hexadecimal digits.
bool IsPciId(std::string_view text) {
    const auto hexadecimal = [](char c) {
        return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
    };
    return text.size() == 9 && text[4] == ':' &&
           std::ranges::all_of(text.substr(0, 4), hexadecimal) &&
           std::ranges::all_of(text.substr(5), hexadecimal);
}

void ReadKnownBy(ObjectFields& io, Machine& machine) {
    const nlohmann::json* list = io.Member("known_by");
    if (list == nullptr) return;
    const bool sound =
        list->is_array() && std::ranges::all_of(*list, [](const auto& id) {
            return id.is_string() && IsPciId(id.template get_ref<const std::string&>());
        });
    if (!sound) return io.Fail("known_by: expected a list of PCI ids such as \"1002:1586\"");
    machine.known_by = list->get<std::vector<std::string>>();
}

void WireFields(ObjectFields& io, Wire& wire) {
    io.Text("about", wire.about);
    io.Text("instead", wire.instead);
    io.Need("bandwidth", Unit::kRate, wire.bandwidth);
    io.Need("latency", Unit::kTime, wire.latency);
    io.Take("price", Unit::kPrice, wire.price);
}

// Reads "wire": the name of a wire, or the figures of the machine's own wire.
void OwnWireFields(ObjectFields& io, Machine& machine) {
    const nlohmann::json* member = io.Member("wire");
    if (machine.own_wire || (member != nullptr && member->is_object())) {
        io.Object("wire", machine.own_wire, WireFields);
        machine.wire = machine.own_wire->name = "measured";
    } else {
        io.Text("wire", machine.wire);
    }
}

void TierFields(ObjectFields& io, LinkTier& tier) {
    io.Count("ranks", tier.ranks, 2, kMostDevices);
    io.Need("bandwidth", Unit::kRate, tier.bandwidth);
    io.Need("latency", Unit::kTime, tier.latency);
}

void LinkFields(ObjectFields& io, Machine& machine) {
    io.Object("tiers", machine.within.has_value(),
              [&](ObjectFields& tiers) { tiers.Object("host", machine.within, TierFields); });
    if (machine.within && machine.within->ranks < machine.devices) {
        io.Fail(fmt::format("tiers.host: joins {} of {} devices", machine.within->ranks,
                            machine.devices));
    }
    if (machine.devices > 1 && !machine.within) machine.within = PcieOf(machine.devices);
    Figure link = machine.link.value_or(LinkTier{}).bandwidth;
    if (!io.Take("link", Unit::kRate, link)) return;
    machine.link = {machine.devices, link, {3e-6, Mark::kGuessed, "kernels over such links"}};
}

void PoolFields(ObjectFields& io, Machine& machine) {
    std::string pool = PoolText(machine.pool);
    io.Text("pool", pool);
    io.Count("threads", machine.threads, 1, 1024);
    const auto* found = std::ranges::find(kPools, pool, &PoolName::name);
    if (found == std::end(kPools)) {
        return io.Fail(
            fmt::format("pool: '{}': expected \"device\", \"unified\" or \"host\"", pool));
    }
    machine.pool = found->kind;
}

void FamilyField(ObjectFields& io, Machine& machine) {
    io.Text("family", machine.family);
    const std::vector<std::string> known = FamilyNames();
    if (machine.family.empty() || std::ranges::find(known, machine.family) != known.end()) return;
    io.Fail(
        fmt::format("family: '{}'; expected one of {}", machine.family, fmt::join(known, ", ")));
}

void MachineFields(ObjectFields& io, Machine& machine) {
    io.Text("about", machine.about);
    ReadKnownBy(io, machine);
    FamilyField(io, machine);
    io.Count("devices", machine.devices, 1, kMostDevices);
    io.Need("memory", Unit::kBytes, machine.memory);
    PoolFields(io, machine);
    io.Need("bandwidth", Unit::kRate, machine.bandwidth);
    io.Need("compute", Unit::kCompute, machine.compute);
    LinkFields(io, machine);
    OwnWireFields(io, machine);
    io.Take("products", Unit::kShare, machine.products);
    io.Take("attention", Unit::kShare, machine.attention);
    io.Take("watts_idle", Unit::kPower, machine.watts_idle);
    io.Take("watts_busy", Unit::kPower, machine.watts_busy);
    if (machine.watts_idle && machine.watts_busy &&
        machine.watts_idle->value > machine.watts_busy->value) {
        io.Fail("watts_idle: more than watts_busy");
    }
    io.Take("price", Unit::kPrice, machine.price);
    io.Object("host", machine.host, HostFields);
    if (machine.host && machine.shares_memory()) {
        io.Fail("host: only GPUs with their own memory have a host beside them");
    }
    io.Object("measured", machine.measured, MeasuredFields);
    if (Measured* measured = machine.measured ? &*machine.measured : nullptr; measured != nullptr) {
        measured->hosts = (measured->ranks + machine.devices - 1) / machine.devices;
    }
}

Error GivenTwice(const std::string& where, const std::string& row, const std::string& name) {
    return MakeError(ErrorCode::kUsage, "{}: {}: the file has the name '{}' twice", where, row,
                     name);
}

// The rows of machines/machines.json and machines/wires.json by name, as objects. A table is a list
// of groups. The cells of a row are the members named by `columns` (null: none), and an object with
// further members. `all` has members that each row gets. A figure without a source gets the source
// of its column. where: the table's file. Errors: kUsage; the message names the file and the row.
Result<std::map<std::string, nlohmann::json>> RowsOf(const nlohmann::json& table,
                                                     const std::string& where) {
    std::map<std::string, nlohmann::json> rows;
    for (const nlohmann::json& group : table) {
        const nlohmann::json &columns = group.at("columns"), &sources = group.at("sources");
        for (const auto& [name, cells] : group.at("rows").items()) {
            const size_t count = cells.size(), least = columns.size();
            const bool sound = count == least || (count == least + 1 && cells[least].is_object());
            if (!sound) {
                return MakeError(ErrorCode::kUsage,
                                 "{}: {}: {} cells; expected {}, one for each column, and at most "
                                 "an object behind them",
                                 where, name, count, least);
            }
            nlohmann::json row = group.value("all", nlohmann::json::object());
            for (size_t i = 0; i < least; ++i) {
                if (cells[i].is_null()) continue;
                const std::string column = columns[i];
                if (!cells[i].is_string()) {
                    row[column] = cells[i];
                    continue;
                }
                std::string cell = cells[i];
                if (sources.contains(column) && cell.find(": ") == cell.npos) {
                    cell += ", " + sources[column].get<std::string>();
                }
                row[column] = std::move(cell);
            }
            if (count > least) row.update(cells[least]);
            if (!rows.emplace(name, std::move(row)).second) return GivenTwice(where, name, name);
        }
    }
    return rows;
}

template <typename T>
std::vector<std::string> NamesOf(const std::map<std::string, T>& map) {
    std::vector<std::string> names;
    for (const auto& [name, value] : map) names.push_back(name);
    return names;
}

// The entry with this name; else the entry with the same letters and digits.
const Wire* LookIn(const std::map<std::string, Wire>& wires, const std::string& name) {
    const auto found = wires.find(name);
    if (found != wires.end()) return &found->second;
    const std::string plain = PlainMachineName(name);
    for (const auto& [other, wire] : wires) {
        if (!plain.empty() && PlainMachineName(other) == plain) return &wire;
    }
    return nullptr;
}

std::string_view WithoutBlanks(std::string_view text) {
    const size_t first = std::min(text.find_first_not_of(' '), text.size());
    return text.substr(first, text.find_last_not_of(' ') + 1 - first);
}

// Removes and returns the first word of "2xh100 + h200, 10gbe".
std::string TakeWord(std::string& list) {
    const size_t end = std::min(list.find_first_of("+,"), list.size());
    std::string word(WithoutBlanks(std::string_view(list).substr(0, end)));
    list.erase(0, end + 1);
    return word;
}

// Takes the number of hosts from the front of `word`: "4xstrix-halo", "4 x strix halo",
// "4*strix-halo" -> 4. A word without a number counts as 1.
Result<int> TakeHosts(std::string& word) {
    constexpr std::string_view kTimes[] = {"x", "X", "*", "\u00d7"};
    int hosts = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), hosts);
    const std::string_view rest(end, word.data() + word.size());
    const std::string_view behind = WithoutBlanks(rest);
    const auto* times = std::ranges::find_if(
        kTimes, [&](std::string_view sign) { return behind.starts_with(sign); });
    if (rest.size() == word.size() || times == std::end(kTimes)) return 1;
    const std::string_view name = WithoutBlanks(behind.substr(times->size()));
    if (error != std::errc() || hosts < 1 || hosts > kMostHosts || name.empty()) {
        return MakeError(ErrorCode::kUsage, "--machines: '{}': expected 1 to {} machines", word,
                         kMostHosts);
    }
    word = std::string(name);
    return hosts;
}

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

// The fastest wire of this kind that is not faster than `gigabits`; if all wires are faster, the
// slowest.
const Nominal& Below(LinkKind kind, double gigabits) {
    const Nominal* below = nullptr;
    for (const Nominal& row : kNominal) {
        if (row.kind != kind) continue;
        if (below == nullptr || row.gigabits <= gigabits) below = &row;
    }
    return *below;
}

// Takes the number of devices from the end of `word`: "rtx-3090:2" -> 2; nullopt: no colon. A colon
// in a folder's name, or in the path of a file *.json, does not count.
Result<std::optional<int>> TakeDevices(std::string& word) {
    const size_t colon = word.rfind(':');
    const bool counts = colon != word.npos && word.find('/', colon) == word.npos;
    if (!counts || word.ends_with(".json")) return std::optional<int>();
    int devices = 0;
    const char* end = word.data() + word.size();
    const auto [stop, error] = std::from_chars(word.data() + colon + 1, end, devices);
    const bool counted = error == std::errc() && stop == end;
    if (!counted || devices < 1 || devices > kMostNamedDevices) {
        return MakeError(ErrorCode::kUsage,
                         "--machines: '{}': expected 1 to {} devices in a host after the colon, "
                         "such as rtx-3090:2",
                         word, kMostNamedDevices);
    }
    word.resize(colon);
    return std::optional(devices);
}

Result<Machine> ReadMachine(const nlohmann::json& json, const std::string& name,
                            const std::string& where) {
    ObjectFields io(json, where);
    Machine machine;
    machine.name = machine.word = machine.kind = name;
    machine.wire = "10gbe";
    MachineFields(io, machine);
    WEFT_TRY(io.Finish());
    return machine;
}

}  // namespace

std::string MachineFileText(Machine machine) {
    ObjectFields io;
    MachineFields(io, machine);
    return io.written().dump(2) + "\n";
}

Result<Machine> ParseMachine(std::string_view text, const std::string& name,
                             const std::string& where) {
    const auto json = ParseJsonText(text, {.bytes = kMostFileBytes, .depth = 8, .unique = true});
    if (json.ok()) return ReadMachine(*json, name, where);
    return MakeError(ErrorCode::kUsage, "{}: {}", where, json.error().message);
}

Result<Library> Library::Open(std::span<const EmbeddedFile> files) {
    Library library;
    for (const EmbeddedFile& file : files) {
        if (file.folder != "machines" || file.name == "families") continue;
        const std::string path = fmt::format("machines/{}.json", file.name);
        const auto table = ParseJsonText(file.text, {.unique = true});
        if (!table.ok()) {
            return MakeError(ErrorCode::kUsage, "{}: {}", path, table.error().message);
        }
        WEFT_ASSIGN(auto rows, RowsOf(*table, path));
        if (file.name == "processors") {
            library.series_ = std::move(rows);
            continue;
        }
        for (auto& [name, row] : rows) {
            const std::string where = fmt::format("{}: {}", path, name);
            const std::vector<std::string> also = row.value("also", std::vector<std::string>{});
            row.erase("also");
            const auto given_twice = [&, &name = name](auto& map, const std::string& other) {
                return map.contains(other) ? Status(GivenTwice(path, name, other)) : Status();
            };
            if (file.name == "machines") {
                WEFT_ASSIGN(library.machines_[name], ReadMachine(row, name, where));
                for (const std::string& other : also) {
                    WEFT_TRY(given_twice(library.also_, other));
                    library.also_[other] = name;
                }
                continue;
            }
            ObjectFields io(row, where);
            Wire wire;
            wire.name = name;
            WireFields(io, wire);
            WEFT_TRY(io.Finish());
            for (const std::string& each : also) {
                WEFT_TRY(given_twice(library.wires_, each));
                library.wires_[each] = wire;
            }
            WEFT_TRY(given_twice(library.wires_, name));
            library.wires_[name] = wire;
        }
    }
    return library;
}

Result<Machine> WithDevices(Machine machine, int devices) {
    if (devices < 1 || devices > kMostDevices) {
        return MakeError(ErrorCode::kUsage, "--machines: '{}:{}': expected 1 to {} devices",
                         machine.name, devices, kMostDevices);
    }
    const double times = static_cast<double>(devices) / machine.devices;
    if (machine.measured && devices != machine.devices) machine.measured->ForgetWire();
    for (auto* figure : {&machine.watts_idle, &machine.watts_busy}) {
        if (*figure) (*figure)->value *= times;
    }
    if (machine.price) {
        double& price = machine.price->value;
        const bool card = machine.devices == 1 && !machine.shares_memory();
        const double desktop = card ? std::min(kDesktopPrice, price / 2) : 0;
        price = (price - desktop) * times + desktop;
    }
    machine.name += fmt::format(":{}", devices);
    machine.word.insert(std::min(machine.word.find('+'), machine.word.size()),
                        fmt::format(":{}", devices));
    machine.devices = devices;
    const bool joined = machine.within && machine.within->ranks >= devices;
    if (devices > 1 && !joined) machine.within = PcieOf(devices);
    return machine;
}

std::optional<Machine> Library::KnownMachine(const std::string& word) const {
    const auto memory_of = [](const Machine& machine) { return machine.memory.value; };
    std::string name = FindMachineName(word, machines_, memory_of);
    if (name.empty()) {
        const auto same = [](const std::string&) { return 0.0; };
        const std::string other = FindMachineName(word, also_, same);
        if (!other.empty()) name = also_.at(other);
    }
    if (!name.empty()) return machines_.at(name);
    const auto members = FindProcessor(word, series_);
    if (!members) return std::nullopt;
    std::string kind;  // "ryzen-9-7950x" from "Ryzen 9 7950X"
    for (const unsigned char c : word) {
        kind += c == ' ' || c == '_' ? '-' : static_cast<char>(std::tolower(c));
    }
    auto machine = ReadMachine(*members, kind, "machines/processors.json: " + kind);
    WEFT_CHECK(machine.ok());
    return *std::move(machine);
}

Error Library::NoMachine(const std::string& word) const {
    if (IsMac(word)) {
        return MakeError(ErrorCode::kUsage,
                         "--machines: '{}' is a Mac, and Weft runs on Linux only: there is nothing "
                         "to predict for macOS and Metal",
                         word);
    }
    if (const auto nearest = NearestProcessors(word, series_); !nearest.empty()) {
        return MakeError(ErrorCode::kUsage,
                         "no processor is called '{}'. The nearest series are: {}. A machine file "
                         "(docs/plan.md) describes any other machine",
                         word, fmt::join(nearest, "; "));
    }
    const std::vector<std::string> names = MachineNames();
    return MakeError(ErrorCode::kUsage,
                     "no machine is called '{}'. The nearest names are {}. Processors are known by "
                     "their series, such as ryzen-9-7950x, core-i7-12700k and epyc-9654. A machine "
                     "file (docs/plan.md) describes any other machine",
                     word, fmt::join(NearestMachines(word, names), ", "));
}

Result<Machine> Library::FindMachine(const std::string& word) const {
    if (word.find('/') == word.npos && !word.ends_with(".json")) {
        auto known = KnownMachine(word);
        if (!known) return NoMachine(word);
        return *std::move(known);
    }
    WEFT_ASSIGN(const std::string text, ReadTextFile(word, kMostFileBytes));
    const size_t begin = word.find_last_of('/') + 1;
    const size_t end = word.ends_with(".json") ? word.size() - 5 : word.size();
    WEFT_ASSIGN(Machine machine, ParseMachine(text, word.substr(begin, end - begin), word));
    machine.word = machine.kind = word;
    return machine;
}

Result<Wire> Library::FindWire(const std::string& name) const {
    if (const Wire* found = LookIn(wires_, name)) return *found;
    const std::vector<std::string> names = WireNames();
    const std::string meant = DidYouMean(name, names);
    return MakeError(ErrorCode::kUsage, "no wire is called '{}'{}{} are {}", name,
                     meant.empty() ? "" : "." + meant, meant.empty() ? "; there" : " There",
                     fmt::join(names, ", "));
}

std::optional<Machine> Library::MachineWith(std::string_view pci_id, int count) const {
    for (const auto& [name, machine] : machines_) {
        if (std::ranges::find(machine.known_by, pci_id) == machine.known_by.end()) continue;
        if (count < 1 || count > machine.devices) return std::nullopt;
        Machine found = machine;
        if (count < found.devices) found.word += fmt::format(":{}", count);
        found.devices = count;
        return found;
    }
    return std::nullopt;
}

std::vector<std::string> Library::MachineNames() const {
    return NamesOf(machines_);
}
std::vector<std::string> Library::WireNames() const {
    return NamesOf(wires_);
}
std::vector<std::string> Library::SeriesPatterns() const {
    return NamesOf(series_);
}

Result<Wire> Library::OwnWireOf(const Machine& machine) const {
    if (machine.own_wire) return *machine.own_wire;
    return FindWire(machine.wire);
}

// Uses the slowest of the hosts' own wires, and assumes that the other hosts have such a card, too.
Status Library::JoinByOwnWires(ClusterSpec& cluster) const {
    const std::string* seen = nullptr;  // hosts of a kind are adjacent
    for (const Machine& host : cluster.hosts) {
        if (seen != nullptr && *seen == host.word) continue;
        WEFT_ASSIGN(const Wire wire, OwnWireOf(host));
        const bool first = seen == nullptr;
        seen = &host.word;
        if (!first && wire.name == cluster.wire.name && !host.own_wire) continue;
        cluster.wire_assumed = cluster.wire_assumed || !first;
        const auto rank = [](const Wire& w) {
            return std::pair(w.bandwidth.value, -w.latency.value);
        };
        if (first || rank(wire) < rank(cluster.wire)) cluster.wire = wire;
    }
    cluster.Join(cluster.wire);
    return {};
}

// ("7900xtx" is one machine, not 7,900 of the machine "xtx". "8 xeon-8480" is 8 of "xeon-8480", not
// 8 of "eon-8480".)
Result<int> Library::TakeHostsOf(std::string& word) const {
    const auto known = [&](const std::string& name) {
        return KnownMachine(name.substr(0, name.find(':'))).has_value();
    };
    const bool sign_last = word.ends_with('*') || word.ends_with("\u00d7");
    if (!sign_last && known(word)) return 1;
    const std::string whole = word;
    WEFT_ASSIGN(const int hosts, TakeHosts(word));
    const std::string with_x = whole.substr(whole.size() - std::min(whole.size(), word.size() + 1));
    const bool joined = with_x == "x" + word || with_x == "X" + word;
    const bool apart = whole.ends_with(" " + with_x);
    if (joined && !known(word) && (apart || known(with_x))) word = with_x;
    return hosts;
}

bool Library::NamesMachine(std::string words) const {
    std::string word = TakeWord(words);
    if (!TakeHostsOf(word).ok()) return false;
    (void)TakeDevices(word);
    if (word.ends_with(".json")) return true;
    word.resize(std::min(word.find(':'), word.size()));  // drops a malformed number of devices
    return KnownMachine(word).has_value() || IsMac(word);
}

// behind: the text in the position of a wire; "": nothing.
Status Library::CheckNoWire(const std::string& word, const std::string& behind) const {
    if (KnownMachine(word) || LookIn(wires_, word) == nullptr) return {};
    if (behind.empty()) {
        return MakeError(ErrorCode::kUsage,
                         "--machines: '{}' is a wire, which stands behind the machines: "
                         "4xstrix-halo,roce",
                         word);
    }
    return MakeError(ErrorCode::kUsage, "--machines: one wire joins all hosts, not '{}' and '{}'",
                     word, behind);
}

Result<ClusterSpec> Library::ParseCluster(const std::string& words) const {
    ClusterSpec cluster;
    cluster.words = words;
    // A comma between machines counts as a plus; the word after the last comma may be the wire.
    std::string list = words, last = words.substr(words.rfind(',') + 1);
    const bool wired = last.size() < words.size() && !NamesMachine(last);
    if (const size_t plus = last.find('+');
        wired && plus != last.npos && !last.ends_with(".json")) {
        return MakeError(ErrorCode::kUsage,
                         "--machines: '{}' follows the wire; name all machines before the wire, as "
                         "2xstrix-halo+2xrtx-3090,roce",
                         last.substr(plus));
    }
    if (wired) list.resize(words.size() - last.size() - 1);
    size_t last_kind = 0;  // the first host of the machine before
    while (!list.empty()) {
        std::string word = TakeWord(list);
        if (const auto host = ParseHostWord(word)) {
            WEFT_TRY(AddHost(std::span(cluster.hosts).subspan(last_kind), word, *host));
            continue;
        }
        last_kind = cluster.hosts.size();
        WEFT_ASSIGN(const int hosts, TakeHostsOf(word));
        WEFT_ASSIGN(const std::optional<int> devices, TakeDevices(word));
        WEFT_TRY(CheckNoWire(word, wired ? last : ""));
        WEFT_ASSIGN(Machine machine, FindMachine(word));
        if (devices) {
            WEFT_ASSIGN(machine, WithDevices(std::move(machine), *devices));
        }
        if (cluster.hosts.size() + static_cast<size_t>(hosts) > kMostHosts) {
            return MakeError(ErrorCode::kUsage, "--machines: more than {} machines", kMostHosts);
        }
        cluster.hosts.insert(cluster.hosts.end(), static_cast<size_t>(hosts), machine);
    }
    if (cluster.hosts.empty()) {
        return MakeError(ErrorCode::kUsage,
                         "--machines: expected such as 4xstrix-halo,roce; machines are {}, and "
                         "processors by their series, such as ryzen-9-7950x",
                         fmt::join(MachineNames(), ", "));
    }
    if (wired) {
        WEFT_ASSIGN(const Wire wire, FindWire(TakeWord(last)));
        cluster.Join(wire);
    } else {
        WEFT_TRY(JoinByOwnWires(cluster));
        cluster.wire_assumed |= cluster.hosts.size() > 1 && !cluster.hosts[0].own_wire;
    }
    return cluster;
}

Result<Wire> WireOf(const Library& library, LinkKind kind, double gigabits) {
    const Nominal& nominal = Below(kind, gigabits);
    WEFT_ASSIGN(Wire wire, library.FindWire(nominal.wire));
    wire.bandwidth.value *= gigabits / nominal.gigabits;
    if (kind == LinkKind::kTcp) {
        WEFT_ASSIGN(const Wire most, library.FindWire(Below(kind, INFINITY).wire));
        wire.bandwidth.value = std::min(wire.bandwidth.value, most.bandwidth.value);
    } else if (kind != LinkKind::kThunderbolt) {
        WEFT_ASSIGN(const Wire tcp, WireOf(library, LinkKind::kTcp, gigabits));
        wire.bandwidth.value = std::max(wire.bandwidth.value, tcp.bandwidth.value);
    }
    return wire;
}

}  // namespace weft::plan
