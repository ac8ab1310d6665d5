#include "net/fabric.h"

#include <fmt/ranges.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <thread>
#include <utility>

#include "base/hash.h"
#include "base/log.h"
#include "base/memory_file.h"
#include "base/on_threads.h"
#include "base/start_thread.h"
#include "net/mpi/link.h"
#include "net/offer.h"
#include "net/shm_link.h"
#include "net/socket.h"
#include "net/tcp_link.h"
#include "net/verbs_device.h"
#include "net/verbs_end.h"
#include "net/wait_policy.h"

namespace weft::net {
namespace {

constexpr size_t kMostWindow = size_t{1} << 32;
// Most accepted connections that wait for a complete greeting, in addition to one per rank.
constexpr size_t kMostUnknownCallers = 64;
// All listeners together accept this many connections per turn; each accepts at least one.
constexpr size_t kAcceptsATurn = 16;
constexpr int64_t kPollMs = 50;
// Time limit for a connection over one route, in the first round: the system sends a lost packet
// again after a second.
constexpr int64_t kWayMs = 1300;
// Dialed ranks give up this much later than dialing ranks.
constexpr int64_t kDiallersFirstMs = 500;
// If a peer is connected, but does not answer within this time, other ways are tried in parallel.
constexpr int64_t kSilentNs = 1'500'000'000;
constexpr std::ptrdiff_t kMostDialThreads = 256;

// The transport of a pair's connection: verbs has a tcp connection beside its queue pair, mpi
// beside its messages.
Transport CarrierOf(Transport transport) {
    const bool beside = transport == Transport::kVerbs || transport == Transport::kMpi;
    return beside ? Transport::kTcp : transport;
}

// The transports of all links, such as "shm+tcp".
std::string TransportsOf(const std::vector<std::unique_ptr<Link>>& links) {
    std::set<std::string> names;
    for (const auto& link : links) {
        if (link != nullptr) names.insert(link->peer().transport);
    }
    return names.empty() ? "none" : fmt::format("{}", fmt::join(names, "+"));
}

// The part of a token that is in each message.
uint64_t ShortToken(const Token& token) {
    uint64_t number;
    std::memcpy(&number, token.data(), sizeof number);
    return number;
}

void Raise(const Fd& event) {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t put = ::write(event.get(), &one, sizeof one);
}

// A connection with an incomplete greeting.
struct Pending {
    Pending(Fd socket, Transport kind, int dialled)
        : fd(std::move(socket)), transport(kind), peer(dialled) {}
    Fd fd;
    Transport transport;
    int peer;  // the dialed rank; -1: an accepted connection from an unknown one
    std::array<std::byte, sizeof(Greeting)> bytes{};
    size_t have = 0;
    Fd region;  // received with the greeting
    int64_t begin_ns = NowNs();
};

// The attempts to reach a peer.
struct Dialling {
    size_t next_way = 0;
    std::vector<size_t> silent{};  // ways to try again
    std::string tried{};           // failed ways, and why
    bool runs = false;             // a thread dials
    bool connected = false;        // some route led to a listener
};

class Builder final : public FabricBuilder {
  public:
    explicit Builder(FabricOptions options) : options_(std::move(options)) {}
    ~Builder() override { EndDials(); }

    Status Open();
    std::string OfferTo(int peer) override;
    Result<Fabric> Connect(const std::vector<std::string>& offers,
                           const Deadline& deadline) override;
    const std::vector<WireEnd>& ends() const override { return link_ends_; }
    const std::vector<int>& unreached() const override { return unreached_; }

  private:
    Status ListenShared();
    Status ListenAll();
    Result<Fd> ListenAt(const std::string& host) const;
    bool Dials(int peer) const;
    bool Joins(int peer) const;
    bool HasWay(int peer) const;
    bool LeaveOut(int peer);
    WireEnd EndOf(int peer, int socket) const;
    const Offer& MyOfferTo(int peer);
    std::vector<TcpWay> TcpWaysOf(int peer) const;
    bool MayUseVerbs(const std::string& address) const;
    Result<std::unique_ptr<VerbsEnd>> MakeVerbsEnd(int peer, const std::string& address);
    Status ConnectVerbs(int peer);
    Status CheckOffers(const std::vector<std::string>& offers);
    void DialAll();
    void BeginDials(std::vector<int> peers);
    void EndDials();
    Status TakeDialled();
    bool MoreWays(int peer) const;
    Result<Fd> Dial(int peer);
    Result<Fd> DialNextWay(int peer);
    void Note(Dialling& dialling, const std::string& why);
    void Greet(int peer, Fd socket);
    Status LeadsNowhere(Pending& pending, const Error& why);
    void TryOtherWays();
    Status JoinAll(const Deadline& deadline);
    void AcceptFrom(Fd& listener, Transport transport);
    // Reads more; drops the connection when it ends or is invalid.
    Status Read(Pending& pending);
    Status Answered(Pending& pending);
    void Greeted(Pending& pending);
    Status Join(int peer, Fd socket, Fd region);
    bool Genuine(const Greeting& greeting, int from) const;
    Greeting GreetingTo(int peer) const;
    PeerName NameOf(int peer) const;
    std::vector<int> Missing() const;

    FabricOptions options_;
    std::vector<Token> tokens_;  // what each peer must present
    std::string unix_name_;
    Fd unix_listener_;
    struct TcpListener {
        std::string host;  // "": every address
        Fd fd;
        uint16_t port = 0;
    };
    std::vector<TcpListener> tcp_listeners_;
    std::string exhausted_;  // why this rank could not accept a connection; "": it could
    // Dials run on separate threads (diallers_), because a dead route takes seconds. While `runs`,
    // only the dialing thread uses next_way and silent.
    std::vector<Dialling> dialling_;  // by peer
    std::vector<std::thread> diallers_;
    std::mutex mutex_;  // guards dialled_ and Dialling::tried
    std::vector<std::pair<int, Result<Fd>>> dialled_;
    Fd wake_, cancel_;  // readable: dialled_ has a result; dials must end
    Status failed_;     // the first failure to dial a needed peer
    Deadline deadline_ = Deadline::In(0);
    std::vector<RdmaPort> rdma_ports_;
    VerbsDevices verbs_;
    std::vector<std::unique_ptr<VerbsEnd>> ends_;  // by peer, until joined; null: none
    std::vector<std::optional<Offer>> mine_;
    std::vector<Offer> theirs_;
    std::vector<Transport> chosen_;
    std::vector<Pending> pending_;
    std::unique_ptr<Progress> progress_;
    std::vector<std::unique_ptr<Link>> links_;
    std::vector<HostAddress> addresses_;  // of this host
    std::vector<std::string> devices_;    // by peer: for verbs
    std::vector<WireEnd> link_ends_;      // by peer
    std::vector<int> unreached_;
};

Status Builder::Open() {
    const FabricOptions& o = options_;
    if (o.size < 1 || o.rank < 0 || o.rank >= o.size || o.window_bytes == 0 ||
        o.window_bytes > kMostWindow || o.window_bytes % 64 != 0 ||
        (!o.hosts.empty() && o.hosts.size() != static_cast<size_t>(o.size))) {
        return MakeError(ErrorCode::kUsage,
                         "a fabric of rank {} of {} with {} host names and windows of {} bytes is "
                         "not possible (windows: a multiple of 64, at most {})",
                         o.rank, o.size, o.hosts.size(), o.window_bytes, kMostWindow);
    }
    tokens_.resize(static_cast<size_t>(o.size));
    for (Token& token : tokens_) RandomBytes(std::as_writable_bytes(std::span(token)));
    ends_.resize(static_cast<size_t>(o.size));
    mine_.resize(static_cast<size_t>(o.size));
    dialling_.resize(static_cast<size_t>(o.size));
    wake_ = Fd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    cancel_ = Fd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    devices_.resize(static_cast<size_t>(o.size));
    options_.needs.resize(static_cast<size_t>(o.size), LinkNeed::kNeeded);
    link_ends_.resize(static_cast<size_t>(o.size));
    auto addresses = ListHostAddresses();
    if (addresses.ok()) addresses_ = *std::move(addresses);
    if (o.size == 1) return {};
    if (o.transport == Transport::kVerbs || o.transport == Transport::kAuto) {
        rdma_ports_ = ListRdmaPorts();
    }
    if (o.transport == Transport::kVerbs) {
        if (!VerbsBuilt()) return verbs_.MakeEnd({}, 0).error();
        WEFT_TRY(CheckRdmaHost(rdma_ports_));
    }
    if (o.transport == Transport::kMpi && o.mpi == nullptr) {
        return MakeError(ErrorCode::kUsage,
                         "--transport mpi joins ranks that an MPI launcher started, as in: "
                         "mpirun -n 2 weft run MODEL --transport mpi");
    }
    if (o.transport == Transport::kShm || o.transport == Transport::kAuto) {
        WEFT_TRY(ListenShared());
    }
    if (o.transport != Transport::kShm) {
        WEFT_TRY(ListenAll());
    }
    return {};
}

// Listens for ranks that share memory with this one. If the system has no memory for that, these
// ranks use TCP.
Status Builder::ListenShared() {
    if (!SealableFile("weft-link").valid()) {
        const char* const why = std::strerror(errno);
        if (options_.transport == Transport::kShm) {
            return MakeError(ErrorCode::kIo,
                             "--transport shm: the system refuses memfd_create: {}. Use "
                             "--transport tcp, or allow the call in the container's seccomp "
                             "profile.",
                             why);
        }
        const auto& hosts = options_.hosts;
        const auto own = static_cast<size_t>(options_.rank);
        const bool first =
            hosts.empty() ? own == 0  // of the ranks on this host
                          : std::ranges::find(hosts, hosts[own]) - hosts.begin() == options_.rank;
        Log(first ? LogLevel::kWarning : LogLevel::kDebug,
            "memfd_create: {}: ranks of this host use TCP instead of shared memory", why);
        return {};
    }
    Token name;
    RandomBytes(std::as_writable_bytes(std::span(name)));
    unix_name_ = "weft-" + Hex(name);
    WEFT_ASSIGN(unix_listener_, ListenUnix(unix_name_));
    return {};
}

// Listens only on the routes' addresses; skips a missing address. Without routes: no listener.
Status Builder::ListenAll() {
    std::set<std::string> hosts;
    for (const std::vector<Way>& ways : options_.ways) {
        for (const Way& way : ways) hosts.insert(way.listen);
    }
    if (options_.ways.empty()) hosts.insert(options_.listen_host);
    Status last;
    for (const std::string& host : hosts) {
        auto fd = ListenAt(host);
        if (!fd.ok()) {
            last = fd.error();
            continue;
        }
        WEFT_ASSIGN(const uint16_t port, BoundPort(fd->get()));
        tcp_listeners_.push_back({host, *std::move(fd), port});
    }
    return tcp_listeners_.empty() ? last : Status();
}

// Listens on the first free port of the allowed ones.
Result<Fd> Builder::ListenAt(const std::string& host) const {
    const PortRange& ports = options_.ports;
    if (ports.first == 0) return ListenTcp(host, 0);
    std::string why;
    for (uint32_t port = ports.first; port <= ports.last; port++) {
        auto fd = ListenTcp(host, static_cast<uint16_t>(port));
        if (fd.ok()) return fd;
        why = fd.error().message;
    }
    return MakeError(ErrorCode::kIo,
                     "no port of --data-ports {}-{} is free for rank {}: {}. Each rank of a host "
                     "needs a port of its own for each address of the host",
                     ports.first, ports.last, options_.rank, why);
}

// The peer's ways to this rank's listeners.
std::vector<TcpWay> Builder::TcpWaysOf(int peer) const {
    std::vector<TcpWay> found;
    if (tcp_listeners_.empty()) return found;
    if (options_.ways.empty()) {
        std::string host = options_.advertise_host;
        if (host.empty()) host = options_.listen_host;
        found.push_back({host.empty() ? "127.0.0.1" : host, tcp_listeners_[0].port});
        return found;
    }
    for (const Way& way : options_.ways[static_cast<size_t>(peer)]) {
        const auto listener = std::ranges::find(tcp_listeners_, way.listen, &TcpListener::host);
        if (listener != tcp_listeners_.end()) found.push_back({way.dial, listener->port});
    }
    return found;
}

std::string Builder::OfferTo(int peer) {
    return EncodeOffer(MyOfferTo(peer));
}

const Offer& Builder::MyOfferTo(int peer) {
    WEFT_CHECK(peer >= 0 && peer < options_.size);
    std::optional<Offer>& made = mine_[static_cast<size_t>(peer)];
    if (made) return *made;
    Offer offer;
    offer.from = options_.rank;
    offer.to = peer;
    offer.size = options_.size;
    offer.epoch = options_.epoch;
    offer.window_bytes = options_.window_bytes;
    offer.transport = options_.transport;
    offer.checksum = options_.checksum;
    const size_t at = static_cast<size_t>(peer);
    offer.hidden = at < options_.hidden.size() && options_.hidden[at];
    offer.encryption = options_.encryption;
    offer.token = tokens_[static_cast<size_t>(peer)];
    RandomBytes(std::as_writable_bytes(std::span(offer.secret)));
    offer.boot_id = BootId();
    offer.network = NetworkNamespace();
    offer.unix_name = unix_name_;
    offer.tcp_more = TcpWaysOf(peer);
    if (!offer.tcp_more.empty()) {
        offer.tcp_host = offer.tcp_more.front().host;
        offer.tcp_port = offer.tcp_more.front().port;
        offer.tcp_more.erase(offer.tcp_more.begin());
    }
    if (peer != options_.rank && MayUseVerbs(offer.tcp_host)) {
        Result<std::unique_ptr<VerbsEnd>> end = MakeVerbsEnd(peer, offer.tcp_host);
        if (end.ok()) {
            offer.verbs = (*end)->address();
            ends_[at] = *std::move(end);
        } else {
            offer.verbs_why = end.error().message;
        }
    }
    const bool may_use_mpi =
        options_.transport == Transport::kMpi || options_.transport == Transport::kAuto;
    if (may_use_mpi && options_.mpi != nullptr && options_.mpi->started()) {
        offer.mpi_job = options_.mpi->job_id();
        offer.mpi_rank = options_.mpi->rank();
    }
    return made.emplace(std::move(offer));
}

// auto uses verbs only if there is a device and the peer may be on another host.
bool Builder::MayUseVerbs(const std::string& address) const {
    if (options_.transport == Transport::kVerbs) return true;
    return options_.transport == Transport::kAuto && VerbsBuilt() && !rdma_ports_.empty() &&
           address != kForwardHost && !IsLoopbackAddress(address);
}

Result<std::unique_ptr<VerbsEnd>> Builder::MakeVerbsEnd(int peer, const std::string& address) {
    WEFT_TRY(CheckRdmaHost(rdma_ports_));
    WEFT_ASSIGN(const RdmaPath path,
                ChooseRdmaPath(rdma_ports_, ListLocalAddresses(),
                               {options_.rdma_device, options_.gid_index, address}));
    WEFT_TRY(CheckRdmaDevice(path.device));
    devices_[static_cast<size_t>(peer)] = fmt::format("{}:{}", path.device, path.port);
    return verbs_.MakeEnd(path, options_.window_bytes);
}

Result<Fabric> Builder::Connect(const std::vector<std::string>& offers, const Deadline& deadline) {
    WEFT_CHECK(progress_ == nullptr);
    progress_ = std::make_unique<Progress>();
    progress_->SetMonitor(options_.monitor);
    links_.resize(static_cast<size_t>(options_.size));
    deadline_ = deadline;
    Status joined = CheckOffers(offers);
    if (joined.ok()) DialAll();
    if (joined.ok()) joined = JoinAll(deadline);
    EndDials();
    pending_.clear();
    ends_.clear();
    if (!joined.ok()) {
        links_.clear();
        return joined.error();
    }
    Fabric fabric;
    fabric.rank = options_.rank;
    fabric.size = options_.size;
    fabric.epoch = options_.epoch;
    fabric.checksum = options_.checksum;
    fabric.transport = TransportsOf(links_);
    fabric.state = std::move(progress_);
    fabric.links = std::move(links_);
    return fabric;
}

Status Builder::CheckOffers(const std::vector<std::string>& offers) {
    if (offers.size() != static_cast<size_t>(options_.size)) {
        return MakeError(ErrorCode::kUsage, "{} offers for a fabric of {} ranks", offers.size(),
                         options_.size);
    }
    bool told = false;
    for (int peer = 0; peer < options_.size; peer++) {
        theirs_.emplace_back();
        chosen_.push_back(Transport::kAuto);
        if (!Joins(peer)) continue;
        WEFT_ASSIGN(theirs_.back(), DecodeOffer(offers[static_cast<size_t>(peer)]));
        Offer& offer = theirs_.back();
        if (offer.from != peer || offer.to != options_.rank || offer.size != options_.size ||
            offer.epoch != options_.epoch || offer.window_bytes != options_.window_bytes) {
            return MakeError(ErrorCode::kUsage,
                             "{} offers rank {} of {} to rank {} in epoch {} with windows of {} "
                             "bytes; expected {} of {} to {} in {} with {}",
                             NameOf(peer).Text(), offer.from, offer.size, offer.to, offer.epoch,
                             offer.window_bytes, peer, options_.size, options_.rank, options_.epoch,
                             options_.window_bytes);
        }
        WEFT_TRY(CheckSameOptions(MyOfferTo(peer), offer, NameOf(peer).Text()));
        const TcpWay root{options_.root_host, offer.tcp_port};
        const bool has_root =
            offer.tcp_host == root.host || std::ranges::count(offer.tcp_more, root) > 0;
        if (peer == 0 && !root.host.empty() && root.port != 0 && !has_root) {
            offer.tcp_more.push_back(root);
        }
        const Offer& mine = MyOfferTo(peer);
        WEFT_ASSIGN(chosen_.back(), ChooseTransport(mine, offer));
        if (!HasWay(peer) && LeaveOut(peer)) continue;
        const std::string why_not = WhyNotVerbs(mine, offer);
        if (chosen_.back() == Transport::kTcp && !why_not.empty() && !told) {
            told = true;
            Log(LogLevel::kWarning, "the link to rank {} uses tcp, not verbs. {}", peer, why_not);
        }
        WEFT_TRY(ConnectVerbs(peer));
    }
    return {};
}

// The queue pair is ready before this rank greets the peer, which may then put at once.
Status Builder::ConnectVerbs(int peer) {
    const size_t at = static_cast<size_t>(peer);
    if (chosen_[at] != Transport::kVerbs) {
        ends_[at].reset();
        return {};
    }
    const Status ready = ends_[at]->Connect(*theirs_[at].verbs);
    if (ready.ok()) return {};
    return MakeError(ready.error().code, "{}: {}", NameOf(peer).Text(), ready.error().message);
}

bool Builder::Joins(int peer) const {
    return peer != options_.rank && options_.needs[static_cast<size_t>(peer)] != LinkNeed::kNone;
}

// Whether the offer of the dialed rank has an address. Both ranks get the same result.
bool Builder::HasWay(int peer) const {
    const size_t at = static_cast<size_t>(peer);
    if (CarrierOf(chosen_[at]) != Transport::kTcp) return true;
    return !(Dials(peer) ? theirs_[at] : *mine_[at]).tcp_host.empty();
}

// Gives up a spare link. Returns false if the link is needed.
bool Builder::LeaveOut(int peer) {
    LinkNeed& need = options_.needs[static_cast<size_t>(peer)];
    if (need != LinkNeed::kSpare) return false;
    need = LinkNeed::kNone;
    return true;
}

// The higher rank of a pair dials, unless only it can be dialed.
bool Builder::Dials(int peer) const {
    const size_t at = static_cast<size_t>(peer);
    const bool hidden = mine_[at].has_value() && mine_[at]->hidden;
    const bool higher = options_.rank > peer;
    if (CarrierOf(chosen_[at]) != Transport::kTcp || hidden == theirs_[at].hidden) return higher;
    return hidden;
}

// Dials all peers at once; needed ones first, because the number of threads is limited.
void Builder::DialAll() {
    std::vector<int> peers;
    for (int peer = 0; peer < options_.size; peer++) {
        if (Joins(peer) && Dials(peer)) peers.push_back(peer);
    }
    std::stable_partition(peers.begin(), peers.end(), [&](int peer) {
        return options_.needs[static_cast<size_t>(peer)] == LinkNeed::kNeeded;
    });
    if (!peers.empty()) BeginDials(std::move(peers));
}

void Builder::BeginDials(std::vector<int> peers) {
    for (const int peer : peers) dialling_[static_cast<size_t>(peer)].runs = true;
    const auto may_last = [&](int peer) {
        return CarrierOf(chosen_[static_cast<size_t>(peer)]) == Transport::kTcp;
    };
    const auto threads =
        static_cast<size_t>(std::min(std::ranges::count_if(peers, may_last), kMostDialThreads));
    const auto run = [this, threads, peers = std::move(peers)] {
        [[maybe_unused]] const Status all = OnThreads(threads, peers.size(), [&](size_t i) {
            Result<Fd> dialled = Dial(peers[i]);
            const std::lock_guard lock(mutex_);
            dialled_.emplace_back(peers[i], std::move(dialled));
            Raise(wake_);
            return Status();
        });
    };
    std::thread thread;
    if (!StartThread(thread, run, {.wait_ms = 0}).ok()) return run();
    diallers_.push_back(std::move(thread));
}

void Builder::EndDials() {
    Raise(cancel_);
    for (std::thread& thread : diallers_) thread.join();
    diallers_.clear();
    dialled_.clear();
}

// Greets the peers that were dialed. Fails if a needed peer was not reached, once no dial of a
// missing peer runs.
Status Builder::TakeDialled() {
    std::vector<std::pair<int, Result<Fd>>> results;
    {
        const std::lock_guard lock(mutex_);
        results.swap(dialled_);
        uint64_t count;
        [[maybe_unused]] const ssize_t got = ::read(wake_.get(), &count, sizeof count);
    }
    for (auto& [peer, dialled] : results) {
        const int rank = peer;
        Dialling& dialling = dialling_[static_cast<size_t>(peer)];
        dialling.runs = false;
        if (links_[static_cast<size_t>(peer)] != nullptr) continue;  // another route answered
        if (dialled.ok()) {
            dialling.connected = true;
            Greet(peer, *std::move(dialled));
            continue;
        }
        const bool open = std::ranges::any_of(
            pending_, [&](const Pending& other) { return other.peer == rank && other.fd.valid(); });
        if (open || LeaveOut(peer)) continue;  // (the answer of an open route may be unread)
        if (!dialling.connected) unreached_.push_back(peer);
        if (failed_.ok()) failed_ = dialled.error();
    }
    for (size_t peer = 0; peer < dialling_.size() && !failed_.ok(); peer++) {
        if (dialling_[peer].runs && links_[peer] == nullptr) return {};
    }
    return failed_;
}

// Thread: any; changes only the state of that peer.
Result<Fd> Builder::Dial(int peer) {
    if (CarrierOf(chosen_[static_cast<size_t>(peer)]) == Transport::kTcp) return DialNextWay(peer);
    Result<Fd> dialled = DialUnix(theirs_[static_cast<size_t>(peer)].unix_name, deadline_);
    if (dialled.ok()) return dialled;
    return MakeError(ErrorCode::kPeerLost, "{}: {}. Is the process alive?", NameOf(peer).Text(),
                     dialled.error().message);
}

void Builder::Greet(int peer, Fd socket) {
    const Greeting greeting = GreetingTo(peer);
    // A new socket accepts 40 bytes at once, or is already dead, which Read reports.
    [[maybe_unused]] const ssize_t sent =
        ::send(socket.get(), &greeting, sizeof greeting, MSG_NOSIGNAL);
    pending_.emplace_back(std::move(socket), CarrierOf(chosen_[static_cast<size_t>(peer)]), peer);
}

// Whether some route has not been tried, or may answer now. Not while a dial runs.
bool Builder::MoreWays(int peer) const {
    const Dialling& dialling = dialling_[static_cast<size_t>(peer)];
    return dialling.next_way <= theirs_[static_cast<size_t>(peer)].tcp_more.size() ||
           !dialling.silent.empty();
}

void Builder::Note(Dialling& dialling, const std::string& why) {
    const std::lock_guard lock(mutex_);
    dialling.tried += (dialling.tried.empty() ? "" : "; ") + why;
}

// Connects over the next route that accepts a connection; the answer shows whether the rank is
// there. After the last route, tries the silent ones again.
Result<Fd> Builder::DialNextWay(int peer) {
    const Offer& offer = theirs_[static_cast<size_t>(peer)];
    Dialling& dialling = dialling_[static_cast<size_t>(peer)];
    const size_t ways = 1 + offer.tcp_more.size();
    // A route that leads elsewhere is better evidence than a route without an answer.
    ErrorCode code = dialling.connected ? ErrorCode::kPeerLost : ErrorCode::kTimeout;
    for (size_t tries = 0; dialling.next_way < ways || !dialling.silent.empty(); tries++) {
        const bool again = dialling.next_way >= ways;
        if (again && deadline_.expired()) break;
        const size_t at = again ? dialling.silent.front() : dialling.next_way++;
        if (again) dialling.silent.erase(dialling.silent.begin());
        const TcpWay way =
            at == 0 ? TcpWay{offer.tcp_host, offer.tcp_port} : offer.tcp_more[at - 1];
        if (way.host.empty()) {
            code = ErrorCode::kPeerLost;
            Note(dialling, "it offers no address in a network that both hosts are in");
            continue;
        }
        // Each round gives a route more time. In the first, each has its part of the time left.
        const auto rest = static_cast<int64_t>(again ? 1 : ways - at);
        const int64_t most_ms = kWayMs * static_cast<int64_t>(1 + tries / ways);
        const Deadline attempt = Deadline::In(std::min(most_ms, deadline_.left_ms() / rest));
        const bool forwards = way.host == kForwardHost && options_.forward;
        Result<Fd> dialled = forwards ? options_.forward(peer, way.port, attempt)
                                      : DialTcp(way.host, way.port, attempt, cancel_.get());
        if (dialled.ok() || dialled.error().code == ErrorCode::kCancelled) return dialled;
        const bool silent = dialled.error().code == ErrorCode::kTimeout;
        if (silent) dialling.silent.push_back(at);
        if (!silent) code = ErrorCode::kPeerLost;
        if (!again || !silent) Note(dialling, dialled.error().message);
    }
    const std::lock_guard lock(mutex_);
    return MakeError(
        code,
        "{}: {}. Is the process alive, and can {} reach {}? --data-net says which network to use{}",
        NameOf(peer).Text(), dialling.tried, NameOf(options_.rank).Text(),
        ways == 1 ? "that address" : "one of these addresses",
        offer.hidden ? ". Both hosts are behind NAT: give one of them --advertise ADDR "
                       "and --data-ports A-B, of ports that are forwarded to it"
                     : "");
}

// The other end is not that rank, or hung up: another route may lead to the rank.
Status Builder::LeadsNowhere(Pending& pending, const Error& why) {
    if (pending.transport == Transport::kShm) return why;
    const int peer = pending.peer;
    pending.fd.Reset();
    Dialling& dialling = dialling_[static_cast<size_t>(peer)];
    const auto is_open = [&](const Pending& other) {
        return other.peer == peer && other.fd.valid();
    };
    const bool more = dialling.runs || MoreWays(peer);
    if (!more && std::ranges::any_of(pending_, is_open)) return {};
    if (!more && dialling.tried.empty()) return LeaveOut(peer) ? Status() : why;
    Note(dialling, why.message);
    if (!dialling.runs) BeginDials({peer});
    return {};
}

// If a route is silent, tries others in parallel: the first that answers wins.
void Builder::TryOtherWays() {
    const int64_t now = NowNs();
    std::vector<int> peers;
    for (Pending& pending : pending_) {
        const int peer = pending.peer;
        if (peer < 0 || !pending.fd.valid() || links_[static_cast<size_t>(peer)] != nullptr ||
            pending.transport == Transport::kShm || now - pending.begin_ns < kSilentNs) {
            continue;
        }
        if (dialling_[static_cast<size_t>(peer)].runs || !MoreWays(peer)) continue;
        pending.begin_ns = now;
        if (std::ranges::count(peers, peer) == 0) peers.push_back(peer);
    }
    if (!peers.empty()) BeginDials(std::move(peers));
}

// The dialing rank has the reason why there is no route, so it reports first.
Status Builder::JoinAll(const Deadline& deadline) {
    const Deadline last = Deadline::In(deadline.left_ms() + kDiallersFirstMs);
    std::vector<pollfd> fds;
    const size_t others = 2 + tcp_listeners_.size();
    while (!Missing().empty()) {
        if (options_.monitor != nullptr && options_.monitor->Failed()) {
            return options_.monitor->Failure();
        }
        if (last.expired()) {
            for (const int peer : Missing()) LeaveOut(peer);
            if (Missing().empty()) break;
            std::vector<std::string> names;
            for (const int peer : Missing()) names.push_back(NameOf(peer).Text());
            return MakeError(ErrorCode::kTimeout, "rank {}: no data link from {} within {} ms. {}",
                             options_.rank, fmt::join(names, ", "), deadline.length_ms(),
                             exhausted_.empty()
                                 ? "Are their processes alive, and does a firewall block this "
                                   "host's ports?"
                                 : "This process accepts no connection: " + exhausted_);
        }
        fds.clear();
        const short events = POLLIN | POLLRDHUP;
        for (const Pending& pending : pending_) fds.push_back({pending.fd.get(), events, 0});
        fds.push_back({wake_.get(), POLLIN, 0});
        fds.push_back({unix_listener_.get(), POLLIN, 0});
        for (const TcpListener& tcp : tcp_listeners_) fds.push_back({tcp.fd.get(), POLLIN, 0});
        ::poll(fds.data(), fds.size(), static_cast<int>(std::min(last.left_ms(), kPollMs)));
        // A rank that answers on one route closes the others, so its answer is read first.
        for (const bool ends : {false, true}) {
            for (size_t i = 0, known = fds.size() - others; i < known; i++) {
                if (fds[i].revents == 0 || ((fds[i].revents & ~POLLIN) != 0) != ends) continue;
                WEFT_TRY(Read(pending_[i]));
            }
        }
        std::erase_if(pending_, [](const Pending& pending) { return !pending.fd.valid(); });
        AcceptFrom(unix_listener_, Transport::kShm);
        for (TcpListener& tcp : tcp_listeners_) AcceptFrom(tcp.fd, Transport::kTcp);
        WEFT_TRY(TakeDialled());
        TryOtherWays();
    }
    return {};
}

// Accepts a few at a time, so earlier connections are read before many new ones displace them.
void Builder::AcceptFrom(Fd& listener, Transport transport) {
    const size_t most = std::max<size_t>(1, kAcceptsATurn / (1 + tcp_listeners_.size()));
    for (size_t i = 0; i < most && listener.valid(); i++) {
        Fd fd = Accept(listener.get());
        if (!fd.valid()) {
            if (IsExhausted(errno)) exhausted_ = std::strerror(errno);
            return;
        }
        const auto is_unknown = [](const Pending& pending) { return pending.peer < 0; };
        // All higher ranks may connect at once.
        if (std::count_if(pending_.begin(), pending_.end(), is_unknown) >=
            static_cast<std::ptrdiff_t>(kMostUnknownCallers) + options_.size) {
            pending_.erase(std::find_if(pending_.begin(), pending_.end(), is_unknown));
        }
        pending_.emplace_back(std::move(fd), transport, -1);
    }
}

Status Builder::Read(Pending& pending) {
    const std::span<std::byte> rest = std::span(pending.bytes).subspan(pending.have);
    int got;
    // Only the answer to a dial has a descriptor. Any local process may call: those that a caller
    // sends are dropped by the kernel.
    if (pending.transport == Transport::kShm && pending.peer >= 0) {
        got = RecvWithFd(pending.fd.get(), rest, pending.region);
    } else {
        got = static_cast<int>(::recv(pending.fd.get(), rest.data(), rest.size(), MSG_DONTWAIT));
        if (got < 0 && errno != EAGAIN && errno != EINTR) got = 0;
    }
    if (got < 0) return {};
    pending.have += static_cast<size_t>(got);
    if (got == 0) {
        const bool needed =
            pending.peer >= 0 && links_[static_cast<size_t>(pending.peer)] == nullptr;
        if (needed) {
            return LeadsNowhere(
                pending, MakeError(ErrorCode::kPeerLost,
                                   "{}: closed the data connection before it was joined. Its own "
                                   "last lines say why.",
                                   NameOf(pending.peer).Text()));
        }
        pending.fd.Reset();
        return {};
    }
    if (pending.have < pending.bytes.size()) return {};
    if (pending.peer >= 0) return Answered(pending);
    Greeted(pending);
    return {};
}

// Handles the answer of a dialed rank.
Status Builder::Answered(Pending& pending) {
    if (links_[static_cast<size_t>(pending.peer)] != nullptr) {  // it answered over another route
        pending.fd.Reset();
        return {};
    }
    Greeting greeting;
    std::memcpy(&greeting, pending.bytes.data(), sizeof greeting);
    if (!Genuine(greeting, pending.peer)) {
        return LeadsNowhere(pending, MakeError(ErrorCode::kDenied,
                                               "{}: the process at its address is not that rank "
                                               "(wrong token). Does another program use the port?",
                                               NameOf(pending.peer).Text()));
    }
    return Join(pending.peer, std::move(pending.fd), std::move(pending.region));
}

// Handles a greeting: joins an expected rank, rejects others.
void Builder::Greeted(Pending& pending) {
    Greeting greeting;
    std::memcpy(&greeting, pending.bytes.data(), sizeof greeting);
    const int peer = greeting.from;
    Fd fd = std::move(pending.fd);
    pending.fd.Reset();
    const bool other = peer >= 0 && peer < options_.size && Joins(peer);
    if (!other || Dials(peer) || !Genuine(greeting, peer) ||
        CarrierOf(chosen_[static_cast<size_t>(peer)]) != pending.transport) {
        Log(LogLevel::kWarning, "refused a data connection without a valid token");
        return;
    }
    if (links_[static_cast<size_t>(peer)] != nullptr) return;  // the peer joined at another address
    const Greeting answer = GreetingTo(peer);
    Fd region;
    Status joined;
    if (pending.transport == Transport::kShm) {
        Result<Fd> made = ShmRegion::Create(options_.window_bytes);
        if (made.ok()) {
            region = *std::move(made);
            joined = SendWithFd(fd.get(), std::as_bytes(std::span(&answer, 1)), region.get());
        } else {
            joined = made.error();
        }
    } else if (::send(fd.get(), &answer, sizeof answer, MSG_NOSIGNAL) != sizeof answer) {
        joined = MakeError(ErrorCode::kIo, "{}", std::strerror(errno));
    }
    if (joined.ok()) joined = Join(peer, std::move(fd), std::move(region));
    if (!joined.ok()) {
        Log(LogLevel::kWarning, "{}: {}", NameOf(peer).Text(), joined.error().message);
    }
}

Status Builder::Join(int peer, Fd socket, Fd region) {
    const size_t at = static_cast<size_t>(peer);
    std::unique_ptr<BaseLink> link;
    Progress::Data data = Progress::Data::kMemory;
    link_ends_[at] = EndOf(peer, socket.get());
    switch (chosen_[at]) {
        case Transport::kAuto: WEFT_CHECK(false); break;  // ChooseTransport never returns it
        case Transport::kShm: {
            WEFT_ASSIGN(ShmRegion map, ShmRegion::Map(region.get(), options_.window_bytes));
            link = MakeShmLink(*progress_, NameOf(peer), std::move(map), std::move(socket),
                               options_.rank < peer);
            break;
        }
        case Transport::kTcp: {
            const bool encrypted = IsEncrypted(*mine_[at], theirs_[at]);
            link_ends_[at].encrypted = encrypted;
            std::optional<LinkKeys> keys;
            if (encrypted) {
                keys = KeysOfLink(mine_[at]->secret, theirs_[at].secret, options_.rank, peer,
                                  options_.epoch);
            }
            WEFT_ASSIGN(link, MakeTcpLink(*progress_, NameOf(peer), std::move(socket),
                                          options_.epoch, options_.window_bytes, keys));
            data = Progress::Data::kSocket;
            break;
        }
        case Transport::kVerbs:
            link = MakeVerbsLink(*progress_, NameOf(peer), std::move(ends_[at]), std::move(socket));
            data = Progress::Data::kMemoryAndWakes;
            break;
        case Transport::kMpi: {
            const MpiPlace place{theirs_[at].mpi_rank, ShortToken(theirs_[at].token),
                                 ShortToken(tokens_[at])};
            WEFT_ASSIGN(link, MakeMpiLink(*progress_, NameOf(peer), *options_.mpi, place,
                                          std::move(socket), options_.window_bytes));
            data = Progress::Data::kSocket;
            break;
        }
    }
    progress_->Add(link.get(), data);
    links_[at] = std::move(link);
    return {};
}

WireEnd Builder::EndOf(int peer, int socket) const {
    const size_t at = static_cast<size_t>(peer);
    WireEnd end;
    end.transport = TransportName(chosen_[at]);
    if (CarrierOf(chosen_[at]) != Transport::kTcp) return end;
    end.address = BoundHost(socket);
    const auto known = std::ranges::find(addresses_, end.address, &HostAddress::host);
    if (known != addresses_.end()) {
        end.interface = known->interface;
        end.speed_mbps = known->speed_mbps;
    }
    if (chosen_[at] == Transport::kVerbs) end.device = devices_[at];
    return end;
}

bool Builder::Genuine(const Greeting& greeting, int from) const {
    const Greeting expected;
    return greeting.magic == expected.magic && greeting.version == expected.version &&
           greeting.from == from && greeting.to == options_.rank &&
           greeting.epoch == options_.epoch &&
           TokensEqual(greeting.token, tokens_[static_cast<size_t>(from)]);
}

Greeting Builder::GreetingTo(int peer) const {
    return {.from = options_.rank,
            .to = peer,
            .epoch = options_.epoch,
            .token = theirs_[static_cast<size_t>(peer)].token};
}

PeerName Builder::NameOf(int peer) const {
    const size_t at = static_cast<size_t>(peer);
    const Transport transport = at < chosen_.size() ? chosen_[at] : options_.transport;
    return {peer, options_.hosts.empty() ? "localhost" : options_.hosts[at],
            TransportName(transport)};
}

std::vector<int> Builder::Missing() const {
    std::vector<int> missing;
    for (int peer = 0; peer < options_.size; peer++) {
        if (Joins(peer) && links_[static_cast<size_t>(peer)] == nullptr) {
            missing.push_back(peer);
        }
    }
    return missing;
}

}  // namespace

Result<std::unique_ptr<FabricBuilder>> FabricBuilder::Make(FabricOptions options) {
    auto builder = std::make_unique<Builder>(std::move(options));
    WEFT_TRY(builder->Open());
    return std::unique_ptr<FabricBuilder>(std::move(builder));
}

}  // namespace weft::net
