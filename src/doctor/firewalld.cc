#include "doctor/firewalld.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "doctor/text.h"

namespace weft::doctor {
namespace {

using Verdict = FilterRule::Verdict;

constexpr size_t kMostZones = 256, kMostRules = 4096;

// Services that firewalld is delivered with: none of them opens the ports of the system's choice.
bool IsUsualService(std::string_view name) {
    constexpr std::string_view kServices =
        "amqp amqps bacula bgp cockpit ceph ceph-mon collectd cups ctdb dhcp dhcpv6 dhcpv6-client "
        "dns dns-over-tls docker-registry docker-swarm elasticsearch etcd-client etcd-server "
        "finger "
        "freeipa-4 freeipa-ldap freeipa-ldaps freeipa-replication freeipa-trust ftp galera git "
        "glusterfs grafana gssd high-availability http http3 https imap imaps ipp ipp-client ipsec "
        "iscsi-target jenkins kadmin kdeconnect kerberos kibana kprop kshell ldap ldaps libvirt "
        "libvirt-tls llmnr llmnr-client mdns mongodb mosh mountd mqtt mqtt-tls ms-wbt mssql mysql "
        "nebula netbios-ns nfs nfs3 nrpe ntp nut openvpn plex pmcd pmproxy pmwebapi pop3 pop3s "
        "postgresql prometheus prometheus-node-exporter proxy-dhcp puppetmaster rdp redis rpc-bind "
        "rsh rsyncd samba samba-client samba-dc sane sip sips smtp smtp-submission smtps snmp "
        "snmptrap spideroak-lansync squid ssdp ssh svn syncthing syslog syslog-tls telnet tftp "
        "tor-socks transmission-client upnp-client vdsm vnc-server vrrp wireguard wsdd wsman "
        "xdmcp xmpp-client zabbix-agent zabbix-server";
    const auto list = Words(kServices);
    return std::ranges::find(list, name) != list.end();
}

// "1025-65535/tcp", "22/tcp"; other protocols are left out.
void AddPorts(std::string_view text, FirewallZone& zone) {
    for (std::string_view word : Words(text)) {
        if (!word.ends_with("/tcp")) continue;
        word.remove_suffix(4);
        if (const auto ports = ParsePorts(word, '-')) zone.ports.push_back(*ports);
    }
}

void AddSources(std::string_view text, FirewallZone& zone) {
    for (std::string_view word : Words(text)) {
        const auto address = ParseIpv4(word);
        if (address) zone.sources.push_back(*address);
        const bool hardware = std::ranges::count(word, ':') == 5 && word.size() == 17;
        zone.unknown_sources = zone.unknown_sources || word.starts_with("ipset:") || hardware;
    }
}

// A rich rule, `rule family="ipv4" source address="10.0.0.0/24" port port="1-9" protocol="tcp"
// accept` (firewalld.richlanguage(5)), word by word.
class RichRule {
  public:
    // None where it is of IPv6 or of another protocol, or decides nothing.
    std::optional<FilterRule> Take(std::string_view text) {
        text = text.substr(0, 1024);
        for (std::string_view word = Next(text); !word.empty(); word = Next(text)) {
            const size_t equals = std::min(word.find('='), word.size());
            std::string_view value = word.substr(std::min(equals + 1, word.size()));
            if (value.starts_with('"')) value.remove_prefix(1);
            if (value.ends_with('"')) value.remove_suffix(1);
            if (equals < word.size()) {
                if (!Value(word.substr(0, equals), value)) return {};
            } else {
                Word(word);
            }
        }
        if (rule_.verdict == Verdict::kNone) return {};
        return std::move(rule_);
    }

  private:
    // Takes a word off the text, what stands in quotes with its blanks; "" at the end.
    static std::string_view Next(std::string_view& text) {
        text = text.substr(std::min(text.find_first_not_of(" \t"), text.size()));
        size_t end = 0;
        for (bool quoted = false; end < text.size(); ++end) {
            if (text[end] == '"') quoted = !quoted;
            if (!quoted && (text[end] == ' ' || text[end] == '\t')) break;
        }
        const std::string_view word = text.substr(0, end);
        text.remove_prefix(end);
        return word;
    }
    void Word(std::string_view word) {
        if (word == "rule") return;
        if (word == "NOT" || word == "not") {
            rule_.other_sources = true;
        } else if (word == "accept") {
            rule_.verdict = Verdict::kAccept;
        } else if (word == "drop" || word == "reject") {
            rule_.verdict = Verdict::kDrop;
        } else if (word == "limit") {
            rule_.uncertain = rule_.uncertain || rule_.verdict != Verdict::kNone;
        } else if (word == "source" || word == "port" || word == "protocol" || word == "log" ||
                   word == "nflog" || word == "audit") {
            part_ = word;
        } else {  // a service, a destination, a mark
            part_ = word;
            rule_.uncertain = true;
        }
    }
    // False where the rule is not about TCP over IPv4.
    bool Value(std::string_view key, std::string_view value) {
        if (key == "family") return value == "ipv4";
        if (part_ == "source" && key == "address") {
            const auto address = ParseIpv4(value);
            if (!address) return false;
            rule_.sources = {*address};
        } else if (part_ == "source" && key == "invert") {
            rule_.other_sources = value == "True";
        } else if (part_ == "source") {
            rule_.uncertain = true;  // a set of addresses, a hardware address
        } else if (part_ == "port" && key == "port") {
            const auto ports = ParsePorts(value, '-');
            if (!ports) return false;
            rule_.ports = {*ports};
        } else if (part_ == "port" || part_ == "protocol") {
            return value == "tcp";
        } else if (part_ == "service" && key == "name") {
            return !IsUsualService(value);
        }
        return true;
    }

    FilterRule rule_;
    std::string_view part_;
};

// One line of a zone, below its name.
void ReadLine(std::string_view line, FirewallZone& zone) {
    const std::string_view value = After(line, ":");
    if (line.starts_with("rule ")) {
        auto rule = RichRule().Take(line);
        if (rule && zone.rules.size() < kMostRules) zone.rules.push_back(std::move(*rule));
    } else if (line.starts_with("interfaces:")) {
        for (std::string_view word : Words(value)) zone.interfaces.emplace_back(word);
    } else if (line.starts_with("sources:")) {
        AddSources(value, zone);
    } else if (line.starts_with("target:")) {
        zone.accepts = value == "ACCEPT";
    } else if (line.starts_with("services:")) {
        const auto services = Words(value);
        zone.unknown_services = !std::ranges::all_of(services, IsUsualService);
    } else if (line.starts_with("ports:")) {
        AddPorts(value, zone);
    } else if (line.starts_with("protocols:")) {  // the line after the ports
        const auto protocols = Words(value);
        zone.accepts_tcp = std::ranges::find(protocols, "tcp") != protocols.end();
        zone.described = true;
    }
}

// What a zone does to a connection, in firewalld's order: rich rules that deny, those that allow,
// protocols, ports and services, its target.
FilterChain ChainOf(const FirewallZone& zone) {
    FilterChain chain;
    chain.is_input = true;
    chain.drops = !zone.accepts && zone.name != "trusted";
    for (const Verdict verdict : {Verdict::kDrop, Verdict::kAccept}) {
        for (const FilterRule& rule : zone.rules) {
            if (rule.verdict == verdict) chain.rules.push_back(rule);
        }
    }
    const auto accept = [&] {
        chain.rules.emplace_back();
        chain.rules.back().verdict = Verdict::kAccept;
        return &chain.rules.back();
    };
    if (zone.accepts_tcp) accept();
    for (const FilterRule::Ports& ports : zone.ports) accept()->ports = {ports};
    if (zone.unknown_services) accept()->uncertain = true;
    return chain;
}

std::string RuleText(const FilterRule& rule, const Names& names) {
    std::string text = "\trule family=\"ipv4\"";
    for (const Ipv4& one : rule.sources) {
        const std::string shown = fmt::format("{}/{}", one.Text(), one.prefix);
        text += fmt::format(" source{} address=\"{}\"", rule.other_sources ? " NOT" : "",
                            names.AddressText(shown));
    }
    for (const auto& [first, last] : rule.ports) {
        text += fmt::format(" port port=\"{}-{}\" protocol=\"tcp\"", first, last);
    }
    if (rule.uncertain) text += " other";
    return text + (rule.verdict == Verdict::kAccept ? " accept\n" : " drop\n");
}

std::string DescriptionText(const FirewallZone& zone, const Names& names) {
    std::string text =
        fmt::format("  services:{}\n  ports:", zone.unknown_services ? " other" : "");
    for (const auto& [first, last] : zone.ports) text += fmt::format(" {}-{}/tcp", first, last);
    text += fmt::format("\n  protocols:{}\n  rich rules:\n", zone.accepts_tcp ? " tcp" : "");
    for (const FilterRule& rule : zone.rules) text += RuleText(rule, names);
    return text;
}

}  // namespace

Passage FirewallZone::Opens(const NetDevice* device) const {
    if (described) return PassageBy({{"zone", ChainOf(*this)}}, device);
    // As they are delivered: Workstation's opens the ports from 1025 on.
    if (name == "trusted" || accepts || name == "FedoraWorkstation") return Passage::kAccepted;
    constexpr std::array<std::string_view, 9> kClosed = {
        "public", "FedoraServer", "block", "dmz", "drop", "external", "home", "internal", "work"};
    return std::ranges::find(kClosed, name) != kClosed.end() ? Passage::kDropped
                                                             : Passage::kUncertain;
}

std::vector<FirewallZone> ParseZones(std::string_view text) {
    std::vector<FirewallZone> zones;
    for (std::string_view line : Lines(text)) {
        const std::string_view trimmed = Trim(line);
        if (trimmed.empty()) continue;
        if (line[0] != ' ' && line[0] != '\t') {
            if (zones.size() >= kMostZones) break;
            zones.emplace_back();
            zones.back().name = std::string(trimmed.substr(0, trimmed.find(' ')));
            zones.back().is_default = Contains(trimmed, "(default");
            continue;
        }
        if (!zones.empty()) ReadLine(trimmed, zones.back());
    }
    return zones;
}

std::string WriteZones(const std::vector<FirewallZone>& zones, Names& names) {
    std::string text;
    for (const FirewallZone& zone : zones) {
        text += fmt::format("{}{}\n", names.Zone(zone.name), zone.is_default ? " (default)" : "");
        if (zone.described)
            text += fmt::format("  target: {}\n", zone.accepts ? "ACCEPT" : "default");
        text += "  interfaces:";
        for (const std::string& one : zone.interfaces)
            text += fmt::format(" {}", names.Interface(one));
        text += "\n  sources:";
        for (const Ipv4& one : zone.sources) {
            const std::string shown = fmt::format("{}/{}", one.Text(), one.prefix);
            text += fmt::format(" {}", names.AddressText(shown));
        }
        text += zone.unknown_sources ? " ipset:other\n" : "\n";
        if (zone.described) text += DescriptionText(zone, names);
    }
    return text;
}

void AddZones(std::vector<FirewallZone>& zones, std::vector<FirewallZone> more) {
    for (FirewallZone& zone : more) {
        const auto found = std::ranges::find(zones, zone.name, &FirewallZone::name);
        if (found == zones.end()) {
            zones.push_back(std::move(zone));
            continue;
        }
        // The places of the first list, and what the second one tells.
        if (found->interfaces.empty()) found->interfaces = std::move(zone.interfaces);
        if (found->sources.empty()) found->sources = std::move(zone.sources);
        found->is_default = found->is_default || zone.is_default;
        found->unknown_sources = found->unknown_sources || zone.unknown_sources;
        if (!zone.described) continue;
        zone.name = std::move(found->name);
        zone.is_default = found->is_default;
        zone.unknown_sources = found->unknown_sources;
        zone.interfaces = std::move(found->interfaces);
        zone.sources = std::move(found->sources);
        *found = std::move(zone);
    }
}

}  // namespace weft::doctor
