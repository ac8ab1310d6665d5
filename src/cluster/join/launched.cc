#include "cluster/join/launched.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "base/byte_codec.h"
#include "base/hash.h"
#include "net/offer.h"

namespace weft::cluster {
namespace {

constexpr int64_t kStartMs = 60'000;   // for all ranks to start
constexpr int64_t kJobMs = 600'000;    // between two jobs of rank 0
constexpr int64_t kGoneMs = 200;       // until a closed listener has certainly ended
constexpr int64_t kRedialRootMs = 50;  // after rank 0 hangs up; doubles up to kMostRedialMs
constexpr int64_t kMostRedialMs = 1000;
constexpr int64_t kFinishMs = 10'000;
constexpr int64_t kTurnAwayMs = 3000;  // largest difference of the ranks' start times
constexpr size_t kKeyBytes = 32;

// Rank 0's message over MPI: a length, then packed strings.
using Card = std::array<std::byte, 4096>;

Card MakeCard(const std::string& text) {
    Card card{};
    const uint32_t length = static_cast<uint32_t>(text.size());
    WEFT_CHECK(text.size() + sizeof length <= card.size());
    std::memcpy(card.data(), &length, sizeof length);
    std::memcpy(card.data() + sizeof length, text.data(), text.size());
    return card;
}

Result<std::vector<std::string>> ReadCard(const Card& card) {
    ByteReader reader(card);
    const std::string_view text = reader.RawText(reader.Take<uint32_t>());
    if (reader.ok()) return UnpackStrings(text);
    return MakeError(ErrorCode::kCorrupt, "rank 0's address card is malformed");
}

}  // namespace

Result<std::unique_ptr<Launched>> Launched::Start(const Launcher& launcher,
                                                  const LaunchOptions& options) {
    std::unique_ptr<Launched> launched(new Launched(launcher));
    launched->start_ms_ = std::max(kStartMs, options.wait_ms);
    Error why{ErrorCode::kUsage, ""};
    if (!launcher.mpi.empty()) {
        auto mpi = net::MpiLibrary::Load(launcher.mpi);
        if (mpi.ok()) {
            launched->mpi_ = std::move(mpi).value();
            WEFT_TRY(launched->MeetByMpi(options));
            return launched;
        }
        why = mpi.error();
        if (options.wants_mpi || launcher.host.empty()) {
            return MakeError(why.code,
                             "{} started this rank, but {}. Or set MASTER_ADDR, MASTER_PORT and "
                             "WEFT_KEY_FILE: the ranks then connect without MPI",
                             launcher.name, why.message);
        }
    } else if (options.wants_mpi) {
        return MakeError(ErrorCode::kUsage,
                         "--transport mpi needs an MPI launcher; {} started this rank. Use mpirun, "
                         "or set WEFT_MPI to openmpi or mpich if MPI_Init works under it",
                         launcher.name);
    }
    WEFT_TRY(launched->MeetAtAddress(options));
    return launched;
}

Status Launched::Listen(const std::string& host, uint16_t port) {
    WEFT_ASSIGN(listener_, net::ListenTcp(host, port));
    return {};
}

Status Launched::MeetByMpi(const LaunchOptions& options) {
    const Deadline deadline = Deadline::In(kStartMs);
    WEFT_TRY(mpi_->Start(deadline));
    if (mpi_->size() != launcher_.size || mpi_->rank() != launcher_.rank) {
        return MakeError(ErrorCode::kUsage,
                         "{} says rank {} of {}, but its MPI library ({}) says {} of {}: is it not "
                         "the launcher's library? Set WEFT_MPI to openmpi or mpich",
                         launcher_.name, launcher_.rank, launcher_.size, mpi_->name(), mpi_->rank(),
                         mpi_->size());
    }
    const std::string place = net::KernelId(net::BootId(), net::NetworkNamespace());
    const Sha256Digest mine = Sha256(std::as_bytes(std::span(place)));
    std::vector<Sha256Digest> all(static_cast<size_t>(launcher_.size));
    WEFT_TRY(mpi_->AllGather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)),
                             deadline));
    const bool one_host =
        !place.empty() &&
        std::ranges::all_of(all, [&](const Sha256Digest& other) { return other == mine; });
    Card card{};
    if (launcher_.rank == 0) {
        WEFT_TRY(Listen(one_host ? "127.0.0.1" : "", 0));
        WEFT_ASSIGN(const uint16_t port, net::BoundPort(listener_.get()));
        key_.resize(kKeyBytes);
        RandomBytes(key_);
        std::vector<std::string> words = {
            std::string(reinterpret_cast<const char*>(key_.data()), key_.size()),
            std::to_string(port)};
        const std::vector<std::string> own =
            one_host ? std::vector<std::string>{"127.0.0.1"} : OwnAddresses();
        words.insert(words.end(), own.begin(), own.end());
        card = MakeCard(PackStrings(words));
    }
    WEFT_TRY(mpi_->Broadcast(card, 0, deadline));
    WEFT_ASSIGN(const std::vector<std::string> words, ReadCard(card));
    if (words.size() < 3) {
        return MakeError(ErrorCode::kIo, "rank 0 has no address that other hosts could reach");
    }
    const auto key = std::as_bytes(std::span(words[0]));
    key_.assign(key.begin(), key.end());
    const auto port = static_cast<uint16_t>(std::strtoul(words[1].c_str(), nullptr, 10));
    for (size_t i = 2; i < words.size(); ++i) addresses_.push_back({words[i], port});
    // Links within a host use shared memory, unless the user chooses otherwise.
    if (options.wants_mpi || (options.may_use_mpi && !one_host)) return {};
    WEFT_TRY(mpi_->Finish(Deadline::In(kStartMs)));
    mpi_.reset();
    return {};
}

Status Launched::MeetAtAddress(const LaunchOptions& options) {
    std::string key_file = options.key_file;
    const char* variable = std::getenv("WEFT_KEY_FILE");
    if (key_file.empty() && variable != nullptr) key_file = variable;
    if (key_file.empty() || launcher_.host.empty() || launcher_.port == 0) {
        return MakeError(
            ErrorCode::kUsage,
            "{} started {} ranks; to connect to each other, they need {}, the same on every host. "
            "Make a key with: (umask 077; head -c 32 /dev/urandom | base64 > FILE)",
            launcher_.name, launcher_.size,
            key_file.empty() ? "--key-file (or WEFT_KEY_FILE)" : "MASTER_ADDR and MASTER_PORT");
    }
    WEFT_ASSIGN(key_, ReadKeyFile(key_file));
    addresses_.push_back({launcher_.host, launcher_.port});
    if (launcher_.rank != 0) return {};
    const Status listens = Listen("", launcher_.port);
    if (listens.ok()) return {};
    return MakeError(listens.error().code,
                     "rank 0: {}. Is another process of this host rank 0, too? {} must give each "
                     "process a rank of its own",
                     listens.error().message, launcher_.name);
}

Status Launched::Gather(RankRegistry& registry, int64_t timeout_ms, const std::atomic<bool>* stop) {
    gathered_ = true;
    return GatherRanks(listener_.get(), launcher_.size, key_, registry,
                       {.timeout_ms = timeout_ms,
                        .deadline = Deadline::In(std::max(start_ms_, timeout_ms)),
                        .stop = stop,
                        .may_return = false,
                        .place = addresses_.front().Text()});
}

// If rank 0 hangs up but still listens, it either had many callers without the key, or has no more
// jobs and hangs up on every rank once.
Result<std::optional<Arrival>> Launched::Arrive() {
    // After a first job, a rank 0 that no longer listens has ended.
    const bool again = met_;
    const int64_t job_ms = again ? kJobMs : start_ms_;
    std::optional<Error> hung_up;
    Deadline job = Deadline::In(job_ms);
    for (int64_t nap_ms = kRedialRootMs;; nap_ms = std::min(2 * nap_ms, kMostRedialMs)) {
        auto fd = DialRankZero(addresses_,
                               Deadline::In(again || hung_up.has_value() ? kGoneMs : start_ms_));
        if (!fd.ok() && again) return std::optional<Arrival>();
        if (!fd.ok()) return hung_up.value_or(fd.error());
        if (!hung_up.has_value()) job = Deadline::In(job_ms);
        auto arrival = ProveRank(std::move(*fd), launcher_.rank, launcher_.size, key_, job);
        if (arrival.ok()) {
            met_ = true;
            return std::optional(std::move(*arrival));
        }
        if (arrival.error().code != ErrorCode::kPeerLost || job.expired()) return arrival.error();
        hung_up = arrival.error();
        std::this_thread::sleep_for(std::chrono::milliseconds(nap_ms));
    }
}

Status Launched::End(bool ok) {
    if (!ok && !gathered_ && listener_.valid()) {
        TurnRanksAway(listener_.get(), launcher_.size, Deadline::In(kTurnAwayMs));
    }
    listener_ = Fd();
    if (mpi_ == nullptr) return {};
    if (ok) return mpi_->Finish(Deadline::In(kFinishMs));
    mpi_->Abandon();
    return {};
}

}  // namespace weft::cluster
