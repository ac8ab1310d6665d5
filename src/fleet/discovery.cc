#include "fleet/discovery.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>
#include <tuple>

#include "base/log.h"
#include "base/start_thread.h"

namespace weft::fleet {
namespace {

constexpr int64_t kPublishMs = 20;           // between two publications
constexpr int kMostBeaconsASecond = 4000;    // per interface: of kMostHosts, and their answers
constexpr int kMostAtOnce = 256;             // datagrams before the next look at the clock
constexpr uint32_t kUnknownSpeedMbps = 900;  // mostly Wi-Fi: ranks after a cable of 1 Gbit/s

uint64_t MakeHostId() {
    std::array<uint64_t, 1> id{};
    while (id[0] == 0) RandomBytes(std::as_writable_bytes(std::span(id)));
    return id[0];
}

// Printable ASCII without spaces, as in beacons.
std::string PlainName(std::string name) {
    for (char& letter : name) {
        if (letter <= ' ' || letter > '~') letter = '?';
    }
    return name.empty() ? "?" : name;
}

class DiscoveryImpl final : public Discovery {
  public:
    DiscoveryImpl(DiscoverySocket socket, Fd wake, const Bytes& key, SelfFacts self, bool log)
        : socket_(std::move(socket)),
          wake_(std::move(wake)),
          key_(PacketKey(key)),
          self_(std::move(self)),
          log_(log) {}
    ~DiscoveryImpl() override;
    Status Begin();

    Hearing Now() const override {
        const std::lock_guard lock(mutex_);
        return heard_;
    }
    Hearing Await(const std::function<bool(const Hearing&)>& enough,
                  const Deadline& deadline) const override;

  private:
    struct Bucket {
        int64_t second = 0;
        int heard = 0, answers = 0;
        int64_t answer_ns = 0;  // when to send an answer; 0: nobody waits for one
    };
    void Serve();
    void Tick();
    bool ReceiveAll();
    int64_t NextAnswerMs() const;
    void AnswerAll();
    void Hear(const Datagram& datagram);
    void HearStranger(const Datagram& datagram, bool other_key);
    void Say(const Wire& wire, PacketKind kind);
    void Publish();
    void LogChanges(const Hearing& now);
    std::vector<Cable> CablesOf(const std::vector<Peer>& peers) const;

    DiscoverySocket socket_;
    Fd wake_;
    const Sha256Digest key_;
    const SelfFacts self_;
    const bool log_;
    const uint64_t id_ = MakeHostId();
    uint64_t sequence_ = 0;
    Roster roster_{id_};
    std::vector<Wire> wires_;
    std::map<std::string, Bucket> buckets_;
    std::map<std::string, std::string> refused_;  // interface: error of its last beacon
    std::map<std::tuple<uint64_t, std::string, std::string>, std::string> told_;
    std::map<std::string, std::string> logged_troubles_;
    size_t ticks_ = 0;
    bool told_full_ = false;
    mutable std::mutex mutex_;
    mutable std::condition_variable changed_;
    Hearing heard_;
    std::thread thread_;
};

DiscoveryImpl::~DiscoveryImpl() {
    const uint64_t one = 1;
    while (::write(wake_.get(), &one, sizeof one) < 0 && errno == EINTR) {
    }
    if (thread_.joinable()) thread_.join();
}

// The main thread handles the process's signals.
Status DiscoveryImpl::Begin() {
    return StartThread(thread_, [this] { Serve(); }, {.signals = false});
}

Hearing DiscoveryImpl::Await(const std::function<bool(const Hearing&)>& enough,
                             const Deadline& deadline) const {
    std::unique_lock lock(mutex_);
    while (!enough(heard_) && !deadline.expired()) {
        changed_.wait_for(lock, std::chrono::milliseconds(deadline.left_ms()));
    }
    return heard_;
}

void DiscoveryImpl::Serve() {
    Deadline next = Deadline::In(0), publish = Deadline::In(0);
    for (bool changed = false;;) {
        std::array<pollfd, 2> fds = {pollfd{wake_.get(), POLLIN, 0},
                                     pollfd{socket_.fd(), POLLIN, 0}};
        int64_t wait_ms = std::min(next.left_ms(), NextAnswerMs());
        if (changed) wait_ms = std::min(wait_ms, publish.left_ms());
        ::poll(fds.data(), fds.size(), static_cast<int>(wait_ms));
        if (fds[0].revents != 0) break;
        changed = ReceiveAll() || changed;
        AnswerAll();
        if (next.expired()) {
            Tick();
            next = Deadline::In(ticks_ < kFirstTicksMs.size() ? kFirstTicksMs[ticks_] : kBeaconMs);
            ++ticks_;
            changed = true;
        }
        if (!changed || !publish.expired()) continue;
        Publish();
        publish = Deadline::In(kPublishMs);
        changed = false;
    }
    if (self_.port == 0) return;
    for (const Wire& wire : wires_) {
        if (wire.trouble.empty()) Say(wire, PacketKind::kLeaves);
    }
}

void DiscoveryImpl::Tick() {
    wires_ = ListWires();
    socket_.Join(wires_);
    roster_.Forget(NowNs());
    const bool full = roster_.IsFull(NowNs());
    if (full && !told_full_) {
        Log(LogLevel::kWarning,
            "more than {} hosts announce themselves: discovery leaves some out. Name the hosts of "
            "a job with --hosts, or give a part of the hosts another key",
            kMostHosts);
    }
    told_full_ = full;
    for (const Wire& wire : wires_) {
        if (!wire.trouble.empty()) continue;
        Say(wire, self_.port == 0 ? PacketKind::kAsks : PacketKind::kHere);
    }
    // A one-second-old address may not be usable yet; a firewall forbids for longer.
    for (Wire& wire : wires_) {
        const auto why = refused_.find(wire.name);
        if (wire.trouble.empty() && why != refused_.end()) {
            wire.trouble = "beacons don't leave: " + why->second;
        }
    }
}

void DiscoveryImpl::Say(const Wire& wire, PacketKind kind) {
    const int64_t now_ns = NowNs();
    buckets_[wire.name].answer_ns = 0;
    DiscoveryPacket packet;
    packet.kind = kind;
    packet.host = id_;
    packet.sequence = ++sequence_;
    packet.nonce = roster_.NonceOf(wire.name, now_ns);
    packet.port = self_.port;
    packet.name = self_.name;
    packet.device = self_.device;
    packet.memory_bytes = self_.memory_bytes;
    packet.interface = wire.name;
    packet.rdma = wire.rdma;
    packet.mbps = wire.mbps;
    packet.echoes = roster_.EchoesOf(wire.name, now_ns);
    packet.cables = CablesOf(roster_.Peers(now_ns));
    const Status sent = socket_.Send(wire, EncodePacket(key_, packet));
    if (sent.ok()) {
        refused_.erase(wire.name);
    } else {
        refused_[wire.name] = sent.error().message;
    }
}

std::vector<Cable> DiscoveryImpl::CablesOf(const std::vector<Peer>& peers) const {
    std::vector<Cable> cables;
    for (const Peer& peer : peers) {
        for (const ReportedCable& cable : peer.heard) {
            const auto own = std::ranges::find(wires_, cable.interface, &Wire::name);
            const bool rdma = own != wires_.end() && !own->rdma.empty() && !cable.peer_rdma.empty();
            cables.push_back(
                {peer.host, cable.interface, cable.peer_interface, CableMbps(cable, wires_), rdma});
        }
    }
    return cables;
}

// Returns whether it received anything.
bool DiscoveryImpl::ReceiveAll() {
    for (int i = 0; i < kMostAtOnce; ++i) {
        const std::optional<Datagram> datagram = socket_.Receive();
        if (!datagram) return i > 0;
        Bucket& bucket = buckets_[datagram->interface];
        const int64_t second = NowNs() / (1000 * kNsPerMs);
        if (bucket.second != second) bucket = {second, 0, 0, bucket.answer_ns};
        if (bucket.heard++ < kMostBeaconsASecond) Hear(*datagram);
    }
    return true;
}

int64_t DiscoveryImpl::NextAnswerMs() const {
    int64_t left_ms = kBeaconMs;
    for (const auto& [interface, bucket] : buckets_) {
        if (bucket.answer_ns == 0) continue;
        left_ms =
            std::min(left_ms, std::max<int64_t>(bucket.answer_ns - NowNs(), 0) / kNsPerMs + 1);
    }
    return left_ms;
}

void DiscoveryImpl::AnswerAll() {
    for (auto& [interface, bucket] : buckets_) {
        if (bucket.answer_ns == 0 || bucket.answer_ns > NowNs()) continue;
        bucket.answer_ns = 0;
        const auto wire = std::ranges::find(wires_, interface, &Wire::name);
        if (wire == wires_.end() || !wire->trouble.empty()) continue;
        if (bucket.answers++ >= kMostAnswersASecond) continue;
        Say(*wire, self_.port == 0 ? PacketKind::kAsks : PacketKind::kHere);
    }
}

void DiscoveryImpl::Hear(const Datagram& datagram) {
    const auto packet = DecodePacket(key_, datagram.bytes);
    if (!packet.ok()) {
        HearStranger(datagram, packet.error().code == ErrorCode::kDenied);
        return;
    }
    const int64_t now_ns = NowNs();
    if (!roster_.Hear(*packet, datagram.interface, datagram.address, now_ns)) return;
    int64_t& answer_ns = buckets_[datagram.interface].answer_ns;
    if (answer_ns != 0) return;
    const size_t heard = roster_.CountOn(datagram.interface);
    answer_ns = now_ns + AnswerDelayMs(id_, heard) * kNsPerMs;
}

void DiscoveryImpl::HearStranger(const Datagram& datagram, bool other_key) {
    const Stranger* stranger =
        roster_.HearStranger(datagram.interface, datagram.address, other_key, NowNs());
    if (stranger == nullptr || !log_) return;
    if (other_key) {
        Log(LogLevel::kWarning,
            "{}: {} announces a cluster with another key. To merge the two clusters: stop 'weft "
            "up' on one of these hosts, and run 'weft up -' there with the key phrase of the other",
            stranger->interface, stranger->address);
    } else {
        Log(LogLevel::kWarning, "{}: {} sends no beacons of this version of weft ({})",
            stranger->interface, stranger->address, WEFT_VERSION);
    }
}

void DiscoveryImpl::Publish() {
    Hearing now{wires_, roster_.Peers(NowNs()), roster_.strangers()};
    if (log_) LogChanges(now);
    {
        const std::lock_guard lock(mutex_);
        heard_ = std::move(now);
    }
    changed_.notify_all();
}

void DiscoveryImpl::LogChanges(const Hearing& now) {
    decltype(told_) lines;
    for (const Peer& peer : now.peers) {
        for (const ReportedCable& cable : peer.heard) {
            const std::string speed = SpeedText(CableMbps(cable, now.wires));
            lines[{peer.host, cable.interface, cable.peer_address}] =
                fmt::format("{} at {} of {}{}", cable.interface, cable.peer_interface, peer.name,
                            speed.empty() ? "" : ", " + speed);
            const std::string remark = cluster::BuildRemark(peer.name, peer.build);
            if (!remark.empty()) lines[{peer.host, "build", ""}] = remark;
        }
    }
    for (const auto& [key, line] : lines) {
        if (!told_.contains(key)) Log(LogLevel::kInfo, "found: {}", line);
    }
    for (const auto& [key, line] : told_) {
        if (!lines.contains(key)) Log(LogLevel::kInfo, "gone: {}", line);
    }
    told_ = std::move(lines);
    std::map<std::string, std::string> troubles;
    // (At the start, some addresses are not usable yet.)
    if (ticks_ <= kFirstTicksMs.size() + 2) return;
    for (const Wire& wire : now.wires) {
        if (wire.trouble.empty()) continue;
        troubles[wire.name] = wire.trouble;
        if (logged_troubles_[wire.name] == wire.trouble) continue;
        Log(LogLevel::kWarning, "{}: discovery does not work on it: {}", wire.name, wire.trouble);
    }
    logged_troubles_ = std::move(troubles);
}

}  // namespace

std::string OwnName() {
    char name[256] = "";
    ::gethostname(name, sizeof name - 1);
    const std::string_view whole = name;
    return PlainName(std::string(whole.substr(0, whole.find('.'))));
}

Result<std::unique_ptr<Discovery>> Discovery::Start(const Bytes& key, const SelfFacts& self,
                                                    bool log) {
    WEFT_ASSIGN(DiscoverySocket socket, DiscoverySocket::Open());
    Fd wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!wake.valid()) return MakeError(ErrorCode::kIo, "eventfd: {}", std::strerror(errno));
    SelfFacts plain = self;
    plain.name = PlainName(self.name);
    for (char& letter : plain.device) {
        if (letter < ' ' || letter > '~') letter = '?';
    }
    auto discovery = std::make_unique<DiscoveryImpl>(std::move(socket), std::move(wake), key,
                                                     std::move(plain), log);
    WEFT_TRY(discovery->Begin());
    return std::unique_ptr<Discovery>(std::move(discovery));
}

uint32_t CableMbps(const ReportedCable& cable, const std::vector<Wire>& wires) {
    const auto own = std::ranges::find(wires, cable.interface, &Wire::name);
    const uint32_t mine = own == wires.end() ? 0 : own->mbps;
    if (mine == 0 || cable.peer_mbps == 0) return std::max(mine, cable.peer_mbps);
    return std::min(mine, cable.peer_mbps);
}

const ReportedCable* BestCable(const Peer& peer, const std::vector<Wire>& wires) {
    const auto worth = [&](const ReportedCable& cable) {
        const auto own = std::ranges::find(wires, cable.interface, &Wire::name);
        const bool rdma = own != wires.end() && !own->rdma.empty() && !cable.peer_rdma.empty();
        const uint32_t mbps = CableMbps(cable, wires);
        return std::pair(mbps == 0 ? kUnknownSpeedMbps : mbps, rdma);
    };
    const ReportedCable* best = nullptr;
    for (const ReportedCable& cable : peer.heard) {
        if (best == nullptr || worth(cable) > worth(*best)) best = &cable;
    }
    return best;
}

std::string WorkerAddress(const Peer& peer, const ReportedCable& cable) {
    return fmt::format("[{}%{}]:{}", cable.peer_address, cable.interface, peer.port);
}

std::vector<net::Neighbour> NeighboursOf(const Hearing& hearing) {
    std::vector<net::Neighbour> neighbours;
    for (const Peer& peer : hearing.peers) {
        for (const ReportedCable& cable : peer.heard) {
            neighbours.push_back({cable.interface, cable.peer_address});
        }
    }
    return neighbours;
}

std::string SpeedText(uint32_t mbps) {
    if (mbps == 0) return "";
    if (mbps < 1000) return fmt::format("{} Mbit/s", mbps);
    return fmt::format("{:g} Gbit/s", static_cast<double>(mbps) / 1000);
}

}  // namespace weft::fleet
