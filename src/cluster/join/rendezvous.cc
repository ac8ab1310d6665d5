// The steps of a rank that has its number in an epoch: host records, data links, readiness.
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>

#include "base/log.h"
#include "base/open_files.h"
#include "base/text.h"
#include "cluster/cluster_impl.h"
#include "cluster/join/dial.h"
#include "cluster/links.h"
#include "cluster/watch/path_fault.h"
#include "hw/cpu.h"
#include "hw/memory.h"
#include "net/offer.h"

namespace weft::cluster {
namespace {

// "": no file or no line.
std::string FirstLineOf(const std::string& path) {
    std::ifstream file(path);
    std::string line;
    // (A line without an end is still being written.)
    if (!std::getline(file, line) || file.eof()) return "";
    return line;
}

// Time for all ranks to exchange host records before there are links. Heartbeats detect silent
// ranks slightly earlier; on a busy host, a living rank may be slow to read its addresses and
// devices.
int64_t MeetMs(int64_t timeout_ms) {
    constexpr int64_t kLeastMs = 60'000;
    return std::max(kLeastMs, timeout_ms + 300);
}

// A rank's host record: the fields of PackHost, then the fields of its place.
enum Field {
    kName,
    kBootId,
    kMemory,
    kCores,
    kGroup,
    kTotal,
    kKernel,
    kAddresses,
    kSeenAs,
    kFields
};

std::vector<std::string> PackHost(const HostInfo& info) {
    return {info.name,
            info.boot_id,
            std::to_string(info.memory_bytes),
            fmt::format("{}", fmt::join(info.cores, ",")),
            info.memory_group,
            std::to_string(info.total_bytes)};
}

bool ReadBytes(const std::string& field, uint64_t& bytes) {
    return std::from_chars(field.data(), field.data() + field.size(), bytes).ec == std::errc();
}

Result<HostInfo> UnpackHost(const std::vector<std::string>& fields) {
    const auto broken = [] { return MakeError(ErrorCode::kCorrupt, "a malformed host record"); };
    if (fields.size() != kFields) return broken();
    HostInfo info{fields[kName], fields[kBootId], {}, 0, fields[kGroup]};
    if (!ReadBytes(fields[kMemory], info.memory_bytes) ||
        !ReadBytes(fields[kTotal], info.total_bytes)) {
        return broken();
    }
    const char* at = fields[kCores].data();
    const char* end = at + fields[kCores].size();
    while (at < end) {
        int core = -1;
        const auto parsed = std::from_chars(at, end, core);
        if (parsed.ec != std::errc() || core < 0) return broken();
        info.cores.push_back(core);
        at = parsed.ptr + 1;  // skip the comma
    }
    return info;
}

constexpr size_t kAddressesNamed = 4;  // addresses of a rank in an error text

// Whether the code means a network fault: no answer, no such address or device, or no port to
// listen on.
bool IsOfNetwork(ErrorCode code) {
    return code == ErrorCode::kTimeout || code == ErrorCode::kNotFound || code == ErrorCode::kIo;
}

std::string AddressWords(std::span<const net::HostAddress> addresses) {
    std::string text;
    const size_t count = std::min(addresses.size(), kAddressesNamed);
    for (const net::HostAddress& each : addresses.first(count)) {
        text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", each.host, each.interface);
    }
    if (text.empty()) return "no address";
    return text + (addresses.size() > kAddressesNamed ? ", ..." : "");
}

bool Has(const auto& addresses, auto field, const std::string& host) {
    return std::ranges::find(addresses, host, field) != addresses.end();
}

// Pairs of ranks whose link only one of the two has: "3 5\n3 6\n".
std::string OneEnded(const LinkTable& links) {
    constexpr size_t kMostPairs = 1000;
    std::string pairs;
    size_t count = 0;
    for (size_t a = 0; a < links.size(); ++a) {
        for (size_t b = a + 1; b < links.size() && count < kMostPairs; ++b) {
            if (links[a][b].transport.empty() == links[b][a].transport.empty()) continue;
            pairs += fmt::format("{} {}\n", a, b);
            ++count;
        }
    }
    return pairs;
}

// Logs that data use another network than the one by which the user named a host.
void WarnOfAnotherNetwork(const std::string& peer, const std::string& named,
                          std::span<const net::HostAddress> mine, std::span<const net::Way> ways) {
    if (ways.empty() || ways[0].listen.substr(0, ways[0].listen.find('%')) == named) return;
    const auto by = std::ranges::find(mine, named, &net::HostAddress::host);
    if (by == mine.end()) return;
    Log(LogLevel::kInfo,
        "{}: its data uses {}, not {} ({}) like its control messages. --data-net {} chooses that "
        "network",
        peer, ways[0].listen, named, by->interface, by->interface);
}

}  // namespace

std::string SystemHostName() {
    char name[256] = "";
    if (::gethostname(name, sizeof name - 1) != 0) return "localhost";
    return name;
}

HostInfo ThisHost(const std::vector<int>& cores) {
    HostInfo info{SystemHostName(), net::BootId(), cores, AvailableMemoryBytes()};
    // A sandbox may hide the boot id. Hosts without one must not count as one machine.
    if (info.boot_id.empty()) info.boot_id = info.name;
    info.total_bytes = TotalMemoryBytes();
    const auto group = OwnGroupMemory();
    if (group && group->left_bytes < MachineMemoryBytes()) info.memory_group = group->path;
    return info;
}

void AllowDescriptors(int ranks) {
    AllowOpenFiles(512 + 3 * static_cast<uint64_t>(ranks));
}

std::vector<std::string> DeviceWords(const std::string& devices) {
    const auto words = Split(devices, ',');
    return {words.begin(), words.end()};
}

Result<std::string> RdmaDeviceOf(const std::string& devices, int rank, int size) {
    const std::vector<std::string> words = DeviceWords(devices);
    if (words.size() == 1) return words[0];
    if (words.size() == static_cast<size_t>(size)) return words[static_cast<size_t>(rank)];
    return MakeError(ErrorCode::kUsage,
                     "--rdma-device {}: {} devices for {} ranks; expected 1 or {}", devices,
                     words.size(), size, size);
}

std::vector<int> PartOfCores(std::span<const int> cores, size_t index, size_t count) {
    if (count > cores.size()) return {cores.begin(), cores.end()};
    const size_t begin = cores.size() * index / count;
    const auto part = cores.subspan(begin, cores.size() * (index + 1) / count - begin);
    return {part.begin(), part.end()};
}

void ClusterImpl::BeAlone() {
    hosts_ = {ThisHost(process_cores_)};
    cores_ = hosts_[0].cores;
    fabric_.links.resize(1);
}

// Sets this rank's cores: the ranks of a host divide its cores into consecutive parts.
void ClusterImpl::ShareCores() {
    const HostInfo& mine = hosts_[static_cast<size_t>(rank_)];
    size_t count = 0, index = 0;
    for (int rank = 0; rank < size_; ++rank) {
        const HostInfo& other = hosts_[static_cast<size_t>(rank)];
        if (other.boot_id != mine.boot_id || other.cores != mine.cores) continue;
        if (rank == rank_) index = count;
        ++count;
    }
    cores_shared_ = count > mine.cores.size();
    cores_ = PartOfCores(mine.cores, index, count);
}

Status ClusterImpl::GatherHosts(const std::vector<std::string>& names) {
    hosts_.clear();
    places_.clear();
    auto listed = net::ListHostAddresses(assignment_.data_net);
    // A job that recovers waits for an interface of --data-net that is down, as it waits for a lost
    // cable.
    const bool down = !listed.ok() && listed.error().code == ErrorCode::kNotFound && recovers();
    if (!listed.ok() && !down) return listed.error();
    off_data_net_ = down ? listed.error().message : "";
    auto addresses = down ? std::vector<net::HostAddress>() : *std::move(listed);
    // Cables, like addresses, change between epochs.
    std::string now = FirstLineOf(data_.neighbours_file);
    if (data_.neighbours_now) now = data_.neighbours_now();
    if (!now.empty()) data_.neighbours = now;
    WEFT_ASSIGN(const auto neighbours, net::ParseNeighbours(data_.neighbours));
    net::AddNeighbours(neighbours, addresses);
    std::vector<std::string> mine = PackHost(ThisHost(process_cores_));
    mine.push_back(net::KernelId(net::BootId(), net::NetworkNamespace()));
    mine.push_back(net::PackAddresses(addresses));
    mine.push_back(SeenAs());
    WEFT_ASSIGN(const auto packed,
                AllGather("host", PackStrings(mine), Deadline::In(MeetMs(timeout_ms_))));
    for (size_t rank = 0; rank < packed.size(); ++rank) {
        WEFT_ASSIGN(const std::vector<std::string> fields, UnpackStrings(packed[rank]));
        WEFT_ASSIGN(HostInfo info, UnpackHost(fields));
        info.name = names[rank];
        uint64_t& most_bytes = memory_seen_[info.name];
        most_bytes = info.memory_bytes = std::max(most_bytes, info.memory_bytes);
        hosts_.push_back(std::move(info));
        WEFT_ASSIGN(auto theirs, net::UnpackAddresses(fields[kAddresses]));
        std::vector<net::HostAddress>& seen = addresses_seen_[names[rank]];
        for (const net::HostAddress& each : theirs) {
            if (!Has(seen, &net::HostAddress::host, each.host)) seen.push_back(each);
        }
        const bool forwarded = fields[kSeenAs] == net::kForwardHost;
        places_.push_back(
            {fields[kKernel], std::move(theirs), forwarded ? "" : fields[kSeenAs], forwarded});
    }
    ShareCores();
    return {};
}

// The ways by which each peer may reach this rank. A peer on this host uses the control plane's
// address, whose RDMA device is the right one, or loopback. Another peer uses an address in a
// common network, or the control plane's address. If the user chose networks, peers use only these
// networks, unless the pair exchanges few bytes and shares none of them.
std::vector<std::vector<net::Way>> ClusterImpl::WaysToMe() const {
    std::vector<std::string> known(static_cast<size_t>(size_), own_host_);
    if (rank_ == 0) known = control_->OwnAddresses();
    known.resize(static_cast<size_t>(size_));
    const bool chosen = !assignment_.data_net.empty();
    const std::vector<net::LocalAddress> local = net::ListLocalAddresses();
    const Place& mine = places_[static_cast<size_t>(rank_)];
    std::vector<std::vector<net::Way>> ways(static_cast<size_t>(size_));
    for (size_t peer = 0; peer < ways.size(); ++peer) {
        if (static_cast<int>(peer) == rank_) continue;
        const Place& theirs = places_[peer];
        if (!mine.kernel.empty() && mine.kernel == theirs.kernel) {
            const bool own = chosen ? Has(mine.addresses, &net::HostAddress::host, known[peer])
                                    : Has(local, &net::LocalAddress::address, known[peer]);
            const std::string host = own ? known[peer] : "127.0.0.1";
            ways[peer] = {{host, host}};
            continue;
        }
        const auto few_bytes = [&] {
            const auto* pair = assignment_.links.Find(rank_, static_cast<int>(peer));
            return pair != nullptr && pair->few_bytes;
        };
        const bool any_net =
            !chosen || (!net::CommonNetwork(theirs.addresses, mine.addresses) && few_bytes());
        ways[peer] = net::WaysFrom(theirs.addresses, mine.addresses, any_net ? known[peer] : "");
        if (chosen || (rank_ != 0 && peer != 0)) continue;
        WarnOfAnotherNetwork(control_->Who(static_cast<int>(peer)), known[peer], mine.addresses,
                             ways[peer]);
    }
    return ways;
}

// Whether rank 0 sees this process at an address that it does not have.
bool ClusterImpl::IsSeenElsewhere() const {
    if (assignment_.seen_as.empty()) return false;
    const std::vector<net::LocalAddress> local = net::ListLocalAddresses();
    return !Has(local, &net::LocalAddress::address, assignment_.seen_as);
}

// The address of this host's NAT, or kForwardHost: no NAT has a link-local address, but a worker
// that forwards rank 0's connection does. "": neither.
std::string ClusterImpl::SeenAs() const {
    if (!IsSeenElsewhere()) return "";
    return assignment_.seen_as.starts_with("fe80:") ? net::kForwardHost : assignment_.seen_as;
}

// Whether the data link between rank 0 and `rank` must use the route of the control messages.
bool ClusterImpl::NeedsForward(size_t rank) const {
    const Place& place = places_[rank];
    return place.forwarded && !net::CommonNetwork(place.addresses, places_[0].addresses);
}

// Whether the rank `theirs` may dial this rank's own addresses, as far as the addresses show. Ranks
// on hosts behind one NAT or on a common network may. Equal networks behind two NATs are different
// networks.
bool ClusterImpl::Reaches(const Place& theirs) const {
    const Place& mine = places_[static_cast<size_t>(rank_)];
    const bool nats = !mine.seen_as.empty() && !theirs.seen_as.empty();
    return (!nats || mine.seen_as == theirs.seen_as) &&
           net::CommonNetwork(theirs.addresses, mine.addresses).has_value();
}

// Adds the address by which other networks reach this host: the user's, or, if the user named
// (forwarded) ports, the address that rank 0 sees. The listener uses every address.
void ClusterImpl::Advertise(std::vector<std::vector<net::Way>>& ways) const {
    const Place& mine = places_[static_cast<size_t>(rank_)];
    if (NeedsForward(static_cast<size_t>(rank_))) ways[0] = {{"", net::kForwardHost}};
    std::string address = data_.advertise;
    if (address.empty() && !data_.ports.empty()) address = mine.seen_as;
    for (size_t peer = 0; peer < ways.size(); ++peer) {
        const Place& theirs = places_[peer];
        if (static_cast<int>(peer) == rank_) continue;
        if (!mine.kernel.empty() && mine.kernel == theirs.kernel) continue;
        if (!address.empty()) {
            const auto first = Reaches(theirs) ? ways[peer].end() : ways[peer].begin();
            ways[peer].insert(first, {"", address});
            for (net::Way& way : ways[peer]) way.listen.clear();
        } else if (ways[peer].empty() && assignment_.data_net.empty() && rank_ == 0) {
            // The address of the control connection. Behind a port forwarder, the peer dials the
            // address by which it reached rank 0 instead.
            ways[peer].push_back({"", control_->OwnAddresses()[peer]});
        }
    }
}

// Peers that can't dial this rank, so this rank dials them.
std::vector<bool> ClusterImpl::HiddenFrom() const {
    const Place& mine = places_[static_cast<size_t>(rank_)];
    std::vector<bool> hidden(static_cast<size_t>(size_));
    for (size_t peer = 1; rank_ == 0 && peer < hidden.size(); ++peer) {
        hidden[peer] = NeedsForward(peer);
    }
    if (mine.seen_as.empty() || !data_.advertise.empty() || !data_.ports.empty()) return hidden;
    for (size_t peer = 0; peer < hidden.size(); ++peer) {
        const bool here = !mine.kernel.empty() && mine.kernel == places_[peer].kernel;
        hidden[peer] = static_cast<int>(peer) != rank_ && !here && !Reaches(places_[peer]);
    }
    return hidden;
}

// The size of the largest offer of all ranks. mine: the largest one of this rank.
Result<size_t> ClusterImpl::LargestOffer(size_t mine) {
    const auto largest = [](const std::vector<std::string>& sizes) -> Result<std::string> {
        uint64_t most = 0, size = 0;
        for (const std::string& each : sizes) {
            if (ReadBytes(each, size)) most = std::max(most, size);
        }
        return std::to_string(most);
    };
    WEFT_ASSIGN(const std::string text, control_->Round("offer size", std::to_string(mine), largest,
                                                        Deadline::In(MeetMs(timeout_ms_))));
    uint64_t most = mine;
    ReadBytes(text, most);
    return most;
}

// Gets the offers of the peers. In a large job, some ranks get theirs at a time: rank 0 holds all
// offers of a round.
Result<std::vector<std::string>> ClusterImpl::ExchangeOffers(
    net::FabricBuilder& builder, const std::vector<net::LinkNeed>& needs) {
    const auto size = static_cast<size_t>(size_), own = static_cast<size_t>(rank_);
    std::vector<std::string> all(size), offers;
    size_t most = 0;
    for (size_t peer = 0; peer < size; ++peer) {
        if (peer == own || needs[peer] == net::LinkNeed::kNone) continue;
        all[peer] = builder.OfferTo(static_cast<int>(peer));
        most = std::max(most, all[peer].size());
    }
    if (size > kRanksInOneRound) {
        WEFT_ASSIGN(most, LargestOffer(most));
    }
    size_t begin = 0;
    for (const size_t end : OfferRounds(assignment_.links, size, most)) {
        std::vector<std::string> mine(size);
        for (size_t peer = begin; peer < end; ++peer) mine[peer] = std::move(all[peer]);
        WEFT_ASSIGN(auto got,
                    control_->Exchange("offers", mine, Deadline::In(MeetMs(timeout_ms_))));
        if (own >= begin && own < end) offers = std::move(got);
        begin = end;
    }
    return offers;
}

Status ClusterImpl::JoinLinks(const AssignMessage& assignment) {
    if (size_ == 1) {  // the others were lost
        fabric_ = {};
        fabric_.links.resize(1);
        own_ends_.clear();
        return {};
    }
    net::FabricOptions options;
    options.rank = rank_;
    options.size = size_;
    options.hosts = assignment.hosts;
    WEFT_ASSIGN(options.transport, net::ParseTransport(assignment.transport));
    WEFT_ASSIGN(options.rdma_device, RdmaDeviceOf(assignment.rdma_device, rank_, size_));
    options.gid_index = assignment.gid_index;
    options.checksum = assignment.checksum;
    if (assignment.plain_links) options.encryption = net::Encryption::kNever;
    if (assignment.window_bytes != 0) options.window_bytes = assignment.window_bytes;
    options.epoch = static_cast<uint64_t>(assignment.epoch);
    options.ways = WaysToMe();
    Advertise(options.ways);
    options.hidden = HiddenFrom();
    options.root_host = root_host_;
    options.needs = NeedsOfPeers();
    if (rank_ == 0 && !workers_.empty()) {
        options.forward = [this](int peer, uint16_t port, const Deadline& deadline) {
            return DialForwarded(workers_[static_cast<size_t>(peer)].address, port, key_, deadline);
        };
    }
    const std::string& ports = data_.ports.empty() ? assignment.data_ports : data_.ports;
    WEFT_ASSIGN(options.ports, net::ParsePorts(ports));
    options.mpi = mpi_;
    options.monitor = control_.get();
    WEFT_ASSIGN(auto builder, net::FabricBuilder::Make(options));
    WEFT_ASSIGN(const auto offers, ExchangeOffers(*builder, options.needs));
    auto fabric = builder->Connect(offers, Deadline::In(timeout_ms_));
    if (!fabric.ok()) {
        unreached_ = builder->unreached();
        if (unreached_.empty()) return fabric.error();
        return MakeError(fabric.error().code, "{}. {}", ApartText(rank_, unreached_.front()),
                         off_data_net_.empty() ? fabric.error().message : off_data_net_);
    }
    fabric_ = *std::move(fabric);
    own_ends_ = builder->ends();
    control_->SetTransport(fabric_.transport);
    return {};
}

std::string ClusterImpl::ApartText(int a, int b) const {
    std::string cable = LinkText(links_, a, b);
    const auto known = [&](int rank) { return rank >= 0 && std::cmp_less(rank, places_.size()); };
    if (!cable.empty()) {
        cable = " (the link was " + cable + ")";
    } else if (known(a) && known(b)) {
        const auto& of_a = places_[static_cast<size_t>(a)].addresses;
        const auto& of_b = places_[static_cast<size_t>(b)].addresses;
        const auto common = net::CommonNetwork(of_a, of_b);
        cable = common.has_value()
                    ? fmt::format(" (their link: {} ({}) - {} ({}))", common->first.host,
                                  common->first.interface, common->second.host,
                                  common->second.interface)
                    : fmt::format(
                          " (they share no network now: rank {} has {}; rank {} has {}. Is "
                          "the cable between them plugged in on both ends?)",
                          a, AddressWords(of_a), b, AddressWords(of_b));
    }
    return fmt::format("{} cannot reach {} for data, though rank 0 reaches both{}",
                       control_->Who(a), control_->Who(b), cable);
}

// Later epochs may be retried if all ranks live but can't reach each other: a data network may
// return later than the control network. The first epoch may be retried if a peer could not be
// dialed: an elastic job begins without that peer.
Status ClusterImpl::Rendezvous(const AssignMessage& assignment) {
    const Status met = Meet(assignment);
    const bool retried = assignment.epoch != kFirstEpoch || !unreached_.empty();
    if (met.ok() || !retried || !IsOfNetwork(met.error().code)) return met;
    return Error{ErrorCode::kPeerLost, met.error().message};
}

Status ClusterImpl::Meet(const AssignMessage& assignment) {
    rank_ = assignment.rank;
    size_ = static_cast<int>(assignment.hosts.size());
    job_ = assignment.job;
    recover_ms_ = assignment.recover_ms;
    assignment_ = assignment;
    AllowDescriptors(size_);
    unreached_.clear();
    control_->SetPhase("rendezvous");
    WEFT_TRY(GatherHosts(assignment.hosts));
    WEFT_TRY(JoinLinks(assignment));
    WEFT_TRY(GatherLinks());
    control_->SetPhase(nullptr);
    return {};
}

std::vector<net::LinkNeed> ClusterImpl::NeedsOfPeers() const {
    const LinkNeeds& links = assignment_.links;
    std::vector<net::LinkNeed> needs(static_cast<size_t>(size_), net::LinkNeed::kNeeded);
    if (links.pairs.empty()) return needs;
    std::ranges::fill(needs, links.spare ? net::LinkNeed::kSpare : net::LinkNeed::kNone);
    for (const LinkNeeds::Pair& pair : links.pairs) {
        const int peer = pair.a == rank_ ? pair.b : pair.a;
        const bool own = pair.a == rank_ || pair.b == rank_;
        if (own) needs[static_cast<size_t>(peer)] = net::LinkNeed::kNeeded;
    }
    return needs;
}

// The answer of a spare link may arrive when one end no longer waits for it. one_ended: pairs of
// ranks, as OneEnded lists them.
Status ClusterImpl::CheckBothEnds(const std::string& one_ended) const {
    std::istringstream pairs(one_ended);
    for (int a = 0, b = 0; pairs >> a >> b;) {
        if (a != rank_ && b != rank_) continue;
        return MakeError(ErrorCode::kTimeout,
                         "the data link between {} and {} was ready at one end only within {} ms. "
                         "Start the job again, with a larger --timeout-ms",
                         control_->Who(rank_), control_->Who(a == rank_ ? b : a), timeout_ms_);
    }
    return {};
}

// Whether two ranks can have a data link, as far as the addresses of their hosts and the last
// attempt show.
bool ClusterImpl::MayJoin(int a, int b) const {
    const Place &one = places_[static_cast<size_t>(a)], &other = places_[static_cast<size_t>(b)];
    if (std::min(a, b) == 0 && std::ranges::count(unreached_, std::max(a, b)) > 0) return false;
    if (!one.kernel.empty() && one.kernel == other.kernel) return true;
    return net::CommonNetwork(one.addresses, other.addresses).has_value();
}

Error ClusterImpl::WithLayouts(Error error) const {
    const bool of_links =
        options_.names_layouts && std::cmp_equal(places_.size(), size_) && size_ > 2;
    if (!of_links || (!IsOfNetwork(error.code) && error.code != ErrorCode::kPeerLost)) return error;
    const auto joined = [this](int a, int b) { return MayJoin(a, b); };
    bool all = true;
    for (int a = 0; a < size_; ++a) {
        for (int b = a + 1; b < size_; ++b) all = all && joined(a, b);
    }
    const std::string layouts = all ? "" : LayoutsThatWork(assignment_.hosts, joined);
    if (!layouts.empty()) AddSentence(error.message, layouts + ".");
    return error;
}

// Waits until every rank is ready; rank 0 receives all links.
Status ClusterImpl::GatherLinks() {
    // (Ranks without spare links are ready a timeout earlier.)
    const int64_t most_ms = (assignment_.links.spare ? 2 : 1) * timeout_ms_ + 800;
    LinkTable links;
    const auto combine = [&](const std::vector<std::string>& rows) -> Result<std::string> {
        for (const std::string& row : rows) {
            WEFT_ASSIGN(LinkRow unpacked, UnpackWireEnds(row, rows.size()));
            links.push_back(std::move(unpacked));
        }
        return OneEnded(links);
    };
    WEFT_ASSIGN(
        const std::string one_ended,
        control_->Round("ready", PackWireEnds(LinkRow(own_ends_)), combine, Deadline::In(most_ms)));
    links_.clear();
    WEFT_TRY(CheckBothEnds(one_ended));
    if (rank_ != 0) return {};
    links_ = std::move(links);
    control_->SetLinks(links_);
    if (assignment_.plain_links && LinksHosts(links_, assignment_.hosts, "tcp")) {
        Log(LogLevel::kWarning,
            "--plain-links: other machines of the network can read and change the data between "
            "the hosts");
    }
    if (!options_.verbose) return {};
    for (const std::string& line : LinkLines(links_, assignment_.hosts)) {
        Log(LogLevel::kInfo, "{}", line);
    }
    return {};
}

Status ClusterImpl::Agree(const std::string& name, const std::string& value,
                          const Deadline& deadline) {
    if (control_ == nullptr) return {};
    const auto compare = [&](const std::vector<std::string>& values) -> Result<std::string> {
        for (size_t rank = 1; rank < values.size(); ++rank) {
            if (values[rank] == values[0]) continue;
            return MakeError(ErrorCode::kDenied,
                             "{}: the {} differs from rank 0's: '{}', but '{}' on {}. All ranks "
                             "need the same value",
                             control_->Who(static_cast<int>(rank)), name, values[rank], values[0],
                             control_->Who(0));
        }
        return std::string();
    };
    WEFT_TRY(control_->Round(name, value, compare, deadline));
    return {};
}

Result<std::vector<std::string>> ClusterImpl::AllGather(const std::string& name,
                                                        const std::string& mine,
                                                        const Deadline& deadline) {
    if (control_ == nullptr) return std::vector<std::string>{mine};
    return control_->AllGather(name, mine, deadline);
}

Status ClusterImpl::Barrier(const std::string& name, const Deadline& deadline) {
    if (control_ == nullptr) return {};
    const auto nothing = [](const std::vector<std::string>&) -> Result<std::string> {
        return std::string();
    };
    WEFT_TRY(control_->Round(name, "", nothing, deadline));
    return {};
}

Status ClusterImpl::Shutdown(const Deadline& deadline) {
    if (control_ == nullptr) return {};
    const Status status = control_->End(deadline);
    control_->Stop();
    return status;
}

}  // namespace weft::cluster
