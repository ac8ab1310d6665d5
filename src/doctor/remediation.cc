#include "doctor/remediation.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "base/shell_word.h"
#include "doctor/facts.h"
#include "doctor/network.h"
#include "doctor/text.h"

namespace weft::doctor {
namespace {

constexpr std::string_view kCures =
#include "doctor/cures.inc"
    ;

struct Row {
    std::string_view name, where, command;
};

const std::vector<Row>& Rows() {
    static const std::vector<Row> rows = [] {
        std::vector<Row> all;
        for (std::string_view line : Lines(kCures)) {
            const size_t first = line.find('|');
            if (line.starts_with('#') || first == line.npos) continue;
            const size_t second = line.find('|', first + 1);
            all.push_back({Trim(line.substr(0, first)),
                           Trim(line.substr(first + 1, second - first - 1)),
                           Trim(line.substr(second + 1))});
        }
        return all;
    }();
    return rows;
}

// A line of os-release(5): "ID=fedora", "ID_LIKE="rhel centos fedora"", "ID='arch'".
std::string ValueOfCure(std::string_view release, std::string_view key) {
    for (std::string_view line : Lines(release)) {
        if (!line.starts_with(key) || line.substr(key.size(), 1) != "=") continue;
        return WithoutQuotes(line.substr(key.size() + 1));
    }
    return "";
}

// The WHERE column of the first row of `table` with a word that satisfies `fits`.
template <typename Fits>
std::string_view SystemIn(std::string_view table, Fits&& fits) {
    for (const Row& row : Rows()) {
        if (row.name == table && std::ranges::any_of(Words(row.command), fits)) return row.where;
    }
    return {};
}

// Fedora images use rpm-ostree; Red Hat 7 uses yum.
std::string_view OfFedora(HostView& view, std::string_view release) {
    const std::string variant = ValueOfCure(release, "VARIANT_ID");
    const auto is_variant = [&](std::string_view one) { return one == variant; };
    if (!SystemIn("variant", is_variant).empty() || HasTag(view, "ostree")) return "ostree";
    const bool old = ValueOfCure(release, "ID") != "fedora" &&
                     ValueOfCure(release, "VERSION_ID").starts_with("7");
    return old ? "yum" : "fedora";
}

// Realtek's own module for the chip at `pci`, or under `device`: r8168 drives chips of 1 Gb/s,
// r8125 of 2.5, r8126 of 5 and r8127 of 10 Gb/s.
std::string RealtekModule(HostView& view, std::string pci, const std::string& device) {
    const NetDevice* net = FindNetDevice(view, device);
    if (pci.empty() && net != nullptr) pci = net->pci;
    const PciDevice* card = FindPci(view, pci);
    for (std::string_view chip : {"8125", "8126", "8127", "8168", "8161", "8111"}) {
        if (card == nullptr || (card->device != chip && !Contains(card->name, chip))) continue;
        return chip.starts_with("812") ? fmt::format("r{}", chip) : "r8168";
    }
    return "r8168 for 1 Gb/s, r8125 for 2.5 Gb/s, r8126 for 5 Gb/s, r8127 for 10 Gb/s";
}

// All tags that a row's WHERE may name.
std::vector<std::string> TagsOf(HostView& view) {
    std::vector<std::string> tags = SystemTags(view);
    tags.emplace_back(DistributionOf(view));
    const std::string release = view.Text("etc/os-release");
    if (DistributionOf(view) == "debian") {
        tags.emplace_back(DebianKindOf(view));
        const bool twelve =
            ValueOfCure(release, "VERSION_ID") == "12" || Contains(KernelRelease(view), "deb12");
        if (twelve) tags.emplace_back("debian12");
    }
    const bool ten = ValueOfCure(release, "VERSION_ID").starts_with("10") &&
                     Contains(ValueOfCure(release, "ID_LIKE") + ValueOfCure(release, "ID"), "rhel");
    if (ten || Contains(KernelRelease(view), ".el10")) tags.emplace_back("rhel10");
    const std::string id = ValueOfCure(release, "ID");
    const auto in_id = [&](std::string_view part) { return Contains(id, part); };
    tags.emplace_back(SystemIn("part-of-id", in_id));
    return tags;
}

// "a b+c" means a, or both b and c.
bool Fits(std::string_view where, const std::vector<std::string>& tags) {
    return std::ranges::any_of(Words(where), [&](std::string_view one) {
        return std::ranges::all_of(Split(one, '+'), [&](std::string_view tag) {
            return tag == "any" || std::ranges::find(tags, tag) != tags.end();
        });
    });
}

// Puts each word of "a b" between `before` and `after`.
std::string EachWord(std::string_view words, std::string_view before, std::string_view after) {
    std::string text;
    for (std::string_view word : Words(words)) {
        text += fmt::format("{}{}{}{}", text.empty() ? "" : " ", before, word, after);
    }
    return text;
}

// Values for a row that another row names together with a value: {NAME VALUE}.
CureValues ValuesOf(const CureValues& outer, std::string_view name, const std::string& value) {
    CureValues values = outer;
    values["value"] = value;
    values["word"] = value.find(' ') == value.npos ? value : '"' + value + '"';
    values["appended"] = EachWord(value, "--append-if-missing=", "");
    values["quoted"] = EachWord(value, "\"", "\"");
    if (name == "module-option") {
        values["module"] = value.substr(0, value.find(' '));
        values["option"] = value.substr(value.find(' ') + 1);
    }
    return values;
}

// Fills in rows of cures.inc for one host.
class Filler {
  public:
    explicit Filler(std::vector<std::string> tags) : tags_(std::move(tags)) {}

    const Row* Find(std::string_view name) const {
        const auto row = std::ranges::find_if(
            Rows(), [&](const Row& one) { return one.name == name && Fits(one.where, tags_); });
        return row == Rows().end() ? nullptr : &*row;
    }
    // Braces without a mark stay, because awk and Nix use them.
    std::string Fill(std::string_view text, const CureValues& values) const {
        std::string filled;
        for (size_t at = 0; at < text.size(); ++at) {
            const size_t end = text[at] == '{' ? EndOf(text, at) : text.npos;
            if (end == text.npos) {
                filled += text[at];
                continue;
            }
            filled += Mark(text.substr(at + 1, end - at - 1), values);
            at = end;
        }
        return filled;
    }

  private:
    // The brace that closes the one at `begin`.
    static size_t EndOf(std::string_view text, size_t begin) {
        size_t depth = 0;
        for (size_t at = begin; at < text.size(); ++at) {
            if (text[at] == '{') ++depth;
            if (text[at] == '}' && --depth == 0) return at;
        }
        return text.npos;
    }
    std::string Mark(std::string_view inside, const CureValues& values) const {
        const size_t blank = std::min(inside.find(' '), inside.size());
        const std::string_view name = inside.substr(0, blank);
        if (const auto value = values.find(name); value != values.end()) return value->second;
        const Row* row = Find(name);
        if (row == nullptr) return "{" + Fill(inside, values) + "}";
        if (blank == inside.size()) return Fill(row->command, values);
        return Fill(row->command, ValuesOf(values, name, Fill(inside.substr(blank + 1), values)));
    }

    std::vector<std::string> tags_;
};

// The line of /etc/default/grub that has the parameter. GRUB joins both lines.
std::string GrubLineOf(HostView& view, std::string_view parameter) {
    const std::string text = view.Text("etc/default/grub");
    const bool first = std::ranges::any_of(Lines(text), [&](std::string_view line) {
        return line.starts_with("GRUB_CMDLINE_LINUX=") && Contains(line, parameter);
    });
    return first ? "GRUB_CMDLINE_LINUX" : "GRUB_CMDLINE_LINUX_DEFAULT";
}

}  // namespace

std::string_view DistributionOf(HostView& view) {
    const std::string kernel = KernelRelease(view);
    const auto in_kernel = [&](std::string_view part) { return Contains(kernel, part); };
    const std::string_view by_kernel = SystemIn("kernel", in_kernel);
    if (by_kernel == "appliance") return by_kernel;
    const std::string release = view.Text("etc/os-release");
    const std::string words = ValueOfCure(release, "ID") + " " + ValueOfCure(release, "ID_LIKE");
    for (std::string_view word : Words(words)) {
        const std::string_view known = SystemIn("id", [&](std::string_view one) {
            return one == word || (one == "opensuse" && word.starts_with(one));
        });
        if (known == "fedora") return OfFedora(view, release);
        if (!known.empty()) return known;
    }
    return by_kernel.empty() ? "unknown" : by_kernel;
}

std::string_view DebianKindOf(HostView& view) {
    const std::string kernel = KernelRelease(view), release = view.Text("etc/os-release");
    const std::string id = ValueOfCure(release, "ID");
    const auto in_kernel = [&](std::string_view part) { return Contains(kernel, part); };
    const auto is_id = [&](std::string_view one) { return one == id; };
    std::string_view kind = SystemIn("kind-by-kernel", in_kernel);
    if (kind.empty()) kind = SystemIn("kind-by-id", is_id);
    if (kind.empty() && id.empty()) kind = SystemIn("kind-by-flavor", in_kernel);
    if (kind.empty() && Contains(ValueOfCure(release, "ID_LIKE"), "ubuntu")) kind = "ubuntu";
    return kind.empty() ? "plain" : kind;
}

std::string Cure(HostView& view, std::string_view name, const CureValues& values,
                 std::initializer_list<std::string_view> tags) {
    std::vector<std::string> all = TagsOf(view);
    for (std::string_view tag : tags) all.emplace_back(tag);
    const Filler filler(std::move(all));
    const Row* row = filler.Find(name);
    WEFT_CHECK(row != nullptr);
    const auto value = values.find("value");
    if (value == values.end()) return filler.Fill(row->command, values);
    CureValues filled = ValuesOf(values, name, value->second);
    if (name == "remove-parameter") filled["grub"] = GrubLineOf(view, value->second);
    return filler.Fill(row->command, filled);
}

std::string FilledFix(HostView& view, std::string_view fix, const std::string& pci,
                      const std::string& device) {
    if (!Contains(fix, "{")) return std::string(fix);
    const bool card = !pci.empty();
    CureValues values = {{"pci", ShellWord(pci)}};
    if (Contains(fix, "{realtek}") || Contains(fix, "{chip}")) {
        values["chip"] = RealtekModule(view, pci, device);
    }
    values["device"] = !device.empty()
                           ? ShellWord(device)
                           : fmt::format("\"$(ls /sys/bus/pci/devices/{}/net)\"", card ? pci : "*");
    std::vector<std::string> tags = TagsOf(view);
    if (card) tags.emplace_back("card");
    if (Contains(fix, "{linktype}")) {  // a message of mlx4_core, about its first port
        RdmaPort port;
        port.device = "mlx4";
        port.pci = pci;
        values["linktype"] = SetLinkType(view, port, true);
    }
    return Filler(std::move(tags)).Fill(fix, values);
}

std::string NixString(std::string_view name) {
    std::string text = "\"";
    for (const char c : name) {
        if (c == '"' || c == '\\' || c == '$') text += '\\';
        text += c;
    }
    return text + '"';
}

std::string StartManager(HostView& view, const RdmaPort& port) {
    const Reading state = view.Command("systemctl is-active opensm");
    const bool here = state.found() && Trim(state.text) == "active";
    return Cure(view, here ? "serve-port" : "start-manager",
                {{"device", ShellWord(port.device)}, {"port", std::to_string(port.port)}});
}

std::string AddParameter(HostView& view, const std::string& parameters) {
    return Cure(view, "add-parameter", {{"value", parameters}});
}

std::string RemoveParameter(HostView& view, const std::string& parameter) {
    return Cure(view, "remove-parameter", {{"value", parameter}});
}

std::string NewerKernelFor(HostView& view, const PciDevice& device) {
    const auto kernel = KernelVersion(view), first = FirstKernelOf(device);
    if (!kernel || !first || *kernel >= *first) return {};
    return Cure(view, "upgrade-kernel",
                {{"value", fmt::format("{}.{}", first->part[0], first->part[1])}});
}

std::string SetSysctl(HostView& view, const std::string& settings) {
    std::string lines, nixos;
    for (std::string_view line : Lines(settings)) {
        const size_t equals = line.find('=');
        lines += fmt::format("{}\\n", line);
        nixos += fmt::format("{}boot.kernel.sysctl.\"{}\" = \"{}\";", nixos.empty() ? "" : " ",
                             line.substr(0, equals), line.substr(equals + 1));
    }
    return Cure(view, "sysctl", {{"value", settings}, {"lines", lines}, {"nixos", nixos}});
}

std::string UnlockUnit(HostView& view, const std::string& unit) {
    std::string name = unit;
    if (name.ends_with(".service")) name.resize(name.size() - 8);
    return Cure(view, "unlock-unit", {{"unit", ShellWord(unit)}, {"nixname", NixString(name)}});
}

namespace {

bool IsInfinibandName(const std::string& device) {
    return device.starts_with("ib");
}

// "; to keep it: " and the row `keep`, with the setting in the syntax of nmcli, netplan, ifupdown
// or NixOS; "": the row is empty.
std::string KeepFor(HostView& view, const std::string& device, CureValues setting) {
    setting["device"] = ShellWord(device);
    setting["nixname"] = NixString(device);
    const Reading state = view.Command("systemctl is-active NetworkManager");
    const bool manages = DistributionOf(view) == "debian" && Trim(state.text) == "active";
    const std::string kept = Cure(view, "keep", setting, {manages ? "networkmanager" : ""});
    return kept.empty() ? "" : "; to keep it: " + kept;
}

// Whether one of the host's addresses or routes is in this network.
bool IsTaken(HostView& view, const Ipv4& subnet) {
    const auto meets = [&](const Ipv4& other) { return subnet.Overlaps(other); };
    return std::ranges::any_of(NetDevices(view),
                               [&](const NetDevice& device) {
                                   return std::ranges::any_of(device.addresses, meets);
                               }) ||
           std::ranges::any_of(Routes(view), [&](const Route& route) { return meets(route.to); });
}

// Each interface without an address gets its own subnet. The first interface gets the same subnet
// on every host.
Ipv4 FreeSubnet(HostView& view, const std::string& device) {
    size_t before = 0;
    for (const NetDevice& other : NetDevices(view)) {
        if (other.name == device) break;
        const bool fabric = IsInfinibandName(other.name) || other.name.starts_with("thunderbolt");
        before += fabric && other.addresses.empty() ? 1 : 0;
    }
    Ipv4 subnet{0x0a2a0000, 24};  // 10.42.0.0, 10.42.1.0, ...
    for (int i = 0; i < 255; ++i, subnet.bits += 256) {
        if (IsTaken(view, subnet)) continue;
        if (before-- == 0) break;
    }
    return subnet;
}

// Whether several Thunderbolt cables of the host have no address. Nothing shows which of them leads
// to which host, and a ring of three hosts has no numbering of interfaces that fits all.
bool IsOneOfSeveralCables(HostView& view, const std::string& device) {
    const auto bare = [](const NetDevice& each) {
        return each.name.starts_with("thunderbolt") && each.addresses.empty();
    };
    return device.starts_with("thunderbolt") && std::ranges::count_if(NetDevices(view), bare) > 1;
}

// Hosts that are examined separately rarely get the same byte.
uint32_t ByteOfName(std::string_view name) {
    uint32_t hash = 2166136261;
    for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619;
    return 1 + (hash ^ hash >> 16) % 250;
}

void ReplaceAll(std::string& text, std::string_view mark, const std::string& with) {
    for (size_t at = text.find(mark); at != text.npos; at = text.find(mark, at + with.size())) {
        text.replace(at, mark.size(), with);
    }
}

// The interface below a VLAN, or the ports of a bridge, if their MTU is less: the kernel refuses a
// larger one above them, or drops its packets. (A bond changes its ports.)
std::vector<std::string> NarrowerBelow(HostView& view, const std::string& device, int mtu) {
    std::vector<std::string> names;
    const NetDevice* own = FindNetDevice(view, device);
    const bool bond =
        device.starts_with("bond") || view.Has("sys/class/net/" + device + "/bonding");
    for (const NetDevice& other : NetDevices(view)) {
        const bool below =
            (own != nullptr && own->lower == other.name) || (other.master == device && !bond);
        if (below && other.mtu > 0 && other.mtu < mtu) names.push_back(other.name);
    }
    return names;
}

}  // namespace

std::string SetMtu(HostView& view, const std::string& device, int mtu) {
    const char* kind = IsInfinibandName(device) ? "infiniband" : "802-3-ethernet";
    std::string commands, kept;
    std::vector<std::string> devices = NarrowerBelow(view, device, mtu);
    devices.push_back(device);
    for (const std::string& each : devices) {
        commands += fmt::format("{}sudo ip link set dev {} mtu {}", commands.empty() ? "" : " && ",
                                ShellWord(each), mtu);
        kept += KeepFor(view, each,
                        {{"nm", fmt::format("{}.mtu {}", kind, mtu)},
                         {"netplan", fmt::format("mtu: {}", mtu)},
                         {"ifupdown", fmt::format("mtu {}", mtu)},
                         {"nixos", fmt::format("mtu = {};", mtu)}});
    }
    return commands + kept;
}

std::string AddAddress(HostView& view, const std::string& device) {
    if (IsOneOfSeveralCables(view, device)) {
        return fmt::format(
            "sudo ip link set dev {} up (then 'weft up' on each host uses the cable without an "
            "address. For addresses, give each cable a subnet of its own, and an address of it to "
            "both ends: the other end may have another number than {})",
            ShellWord(device), device);
    }
    const std::string subnet = FreeSubnet(view, device).Text();
    const std::string address = subnet.substr(0, subnet.rfind('.') + 1) + std::string(kHostByte);
    return fmt::format(
        "sudo ip link set dev {0} up && sudo ip addr add {1}/24 dev {0} (on the other hosts "
        "further addresses of {2}/24){3}",
        ShellWord(device), address, subnet,
        KeepFor(view, device,
                {{"nm", fmt::format("ipv4.method manual ipv4.addresses {}/24", address)},
                 {"netplan", fmt::format("addresses: [{}/24]", address)},
                 {"ifupdown", fmt::format("address {}/24", address)},
                 {"nixos", fmt::format("ipv4.addresses = [ {{ address = \"{}\"; prefixLength = "
                                       "24; }} ];",
                                       address)}}));
}

std::string SetLinkType(HostView& view, const RdmaPort& port, bool infiniband) {
    const bool known = !port.pci.empty();
    const std::string card =
        known ? ShellWord(port.pci) : "\"$(lspci -D | awk '/Mellanox/ {print $1; exit}')\"";
    // The ports of a ConnectX-3 can change without a reboot.
    return Cure(view, "link-type",
                {{"card", card},
                 {"pci", ShellWord(port.pci)},
                 {"port", std::to_string(PortOfCard(view, port))},
                 {"protocol", infiniband ? "ib" : "eth"},
                 {"number", infiniband ? "1" : "2"}},
                {port.mlx4() && known ? "mlx4" : "mlx5"});
}

std::string ForHost(HostView& view, std::string fix, size_t number) {
    ReplaceAll(fix, kHostByte,
               std::to_string(number > 0 && number < 250 ? number : ByteOfName(view.host())));
    if (DistributionOf(view) != "debian" || DebianKindOf(view) != "proxmox") return fix;
    for (size_t at = fix.find("sudo "); at != fix.npos; at = fix.find("sudo ", at)) {
        const char before = at == 0 ? ' ' : fix[at - 1];
        const bool word = before == ' ' || before == '\'' || before == '(' || before == '"';
        if (word) {
            fix.erase(at, 5);
        } else {
            at += 5;
        }
    }
    return fix;
}

}  // namespace weft::doctor
