#include "net/offer.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>

namespace weft::net {
namespace {

constexpr std::string_view kMagic = "WOF5";
constexpr size_t kMostString = 255;
constexpr size_t kMostReason = 1023;
constexpr int kMostRanks = 4096;
constexpr uint64_t kMostMpiRank = 0x7fffffff;

void AppendInt(std::string& out, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; i++) out.push_back(static_cast<char>(value >> (8 * i)));
}

void AppendString(std::string& out, std::string_view text) {
    text = text.substr(0, kMostString);
    AppendInt(out, text.size(), 1);
    out += text;
}

// Reads from the front of a view; after the first missing byte all values are zero and ok() is
// false.
class Cursor {
  public:
    explicit Cursor(std::string_view bytes) : left_(bytes) {}
    bool ok() const { return ok_; }
    bool at_end() const { return left_.empty(); }
    std::string_view Take(size_t count) {
        if (count > left_.size()) ok_ = false;
        if (!ok_) return {};
        const std::string_view taken = left_.substr(0, count);
        left_.remove_prefix(count);
        return taken;
    }
    uint64_t Int(int bytes) {
        uint64_t value = 0;
        const std::string_view taken = Take(static_cast<size_t>(bytes));
        for (size_t i = 0; i < taken.size(); i++) {
            value |= uint64_t{static_cast<uint8_t>(taken[i])} << (8 * i);
        }
        return value;
    }
    std::string String() { return std::string(Take(Int(1))); }

  private:
    std::string_view left_;
    bool ok_ = true;
};

void AppendVerbs(std::string& out, const Offer& offer) {
    AppendInt(out, offer.verbs.has_value() ? 1 : 0, 1);
    if (!offer.verbs.has_value()) {
        const std::string_view why = std::string_view(offer.verbs_why).substr(0, kMostReason);
        AppendInt(out, why.size(), 2);
        out += why;
        return;
    }
    const VerbsAddress& verbs = *offer.verbs;
    AppendInt(out, verbs.infiniband ? 1 : 0, 1);
    AppendInt(out, verbs.mtu, 1);
    AppendInt(out, verbs.lid, 2);
    AppendInt(out, verbs.qpn, 4);
    AppendInt(out, verbs.psn, 4);
    AppendInt(out, verbs.rkey, 4);
    AppendInt(out, verbs.region, 8);
    out.append(reinterpret_cast<const char*>(verbs.gid.data()), verbs.gid.size());
}

// Returns false if the data are malformed, or impossible for a queue pair.
bool ReadVerbs(Cursor& in, Offer& offer) {
    const uint64_t present = in.Int(1);
    if (present == 0) {
        const uint64_t length = in.Int(2);
        offer.verbs_why = in.Take(length);
        return length <= kMostReason;
    }
    VerbsAddress verbs;
    const uint64_t layer = in.Int(1);
    verbs.infiniband = layer == 1;
    verbs.mtu = static_cast<uint8_t>(in.Int(1));
    verbs.lid = static_cast<uint16_t>(in.Int(2));
    verbs.qpn = static_cast<uint32_t>(in.Int(4));
    verbs.psn = static_cast<uint32_t>(in.Int(4));
    verbs.rkey = static_cast<uint32_t>(in.Int(4));
    verbs.region = in.Int(8);
    const std::string_view gid = in.Take(verbs.gid.size());
    if (!in.ok()) return false;
    std::memcpy(verbs.gid.data(), gid.data(), gid.size());
    offer.verbs = verbs;
    return present == 1 && layer <= 1 && Plausible(verbs, offer.window_bytes);
}

}  // namespace

bool TokensEqual(const Token& a, const Token& b) {
    unsigned different = 0;
    for (size_t i = 0; i < a.size(); i++) different |= unsigned{a[i]} ^ unsigned { b[i] };
    return different == 0;
}

std::string EncodeOffer(const Offer& offer) {
    std::string out(kMagic);
    AppendInt(out, static_cast<uint64_t>(offer.from), 4);
    AppendInt(out, static_cast<uint64_t>(offer.to), 4);
    AppendInt(out, static_cast<uint64_t>(offer.size), 4);
    AppendInt(out, offer.epoch, 8);
    AppendInt(out, offer.window_bytes, 8);
    AppendInt(out, static_cast<uint64_t>(offer.transport), 1);
    AppendInt(out, offer.checksum ? 1 : 0, 1);
    AppendInt(out, offer.hidden ? 1 : 0, 1);
    AppendInt(out, static_cast<uint64_t>(offer.encryption), 1);
    out.append(reinterpret_cast<const char*>(offer.token.data()), offer.token.size());
    out.append(reinterpret_cast<const char*>(offer.secret.data()), offer.secret.size());
    AppendString(out, offer.boot_id);
    AppendString(out, offer.network);
    AppendString(out, offer.unix_name);
    AppendString(out, offer.tcp_host);
    AppendInt(out, offer.tcp_port, 2);
    const size_t more = std::min(offer.tcp_more.size(), kMostTcpWays);
    AppendInt(out, more, 1);
    for (size_t i = 0; i < more; i++) {
        AppendString(out, offer.tcp_more[i].host);
        AppendInt(out, offer.tcp_more[i].port, 2);
    }
    AppendVerbs(out, offer);
    AppendString(out, offer.mpi_job);
    AppendInt(out, static_cast<uint64_t>(offer.mpi_rank), 4);
    return out;
}

Result<Offer> DecodeOffer(std::string_view bytes) {
    Cursor in(bytes);
    const bool known = in.Take(kMagic.size()) == kMagic;
    Offer offer;
    const uint64_t from = in.Int(4);
    const uint64_t to = in.Int(4);
    const uint64_t size = in.Int(4);
    offer.epoch = in.Int(8);
    offer.window_bytes = in.Int(8);
    const uint64_t transport = in.Int(1);
    const uint64_t checksum = in.Int(1);
    const uint64_t hidden = in.Int(1);
    const uint64_t encryption = in.Int(1);
    const std::string_view token = in.Take(offer.token.size());
    const std::string_view secret = in.Take(offer.secret.size());
    offer.boot_id = in.String();
    offer.network = in.String();
    offer.unix_name = in.String();
    offer.tcp_host = in.String();
    offer.tcp_port = static_cast<uint16_t>(in.Int(2));
    const uint64_t more = in.Int(1);
    for (uint64_t i = 0; i < more && more <= kMostTcpWays; i++) {
        std::string host = in.String();
        offer.tcp_more.push_back({std::move(host), static_cast<uint16_t>(in.Int(2))});
    }
    const bool verbs = ReadVerbs(in, offer);
    offer.mpi_job = in.String();
    const uint64_t mpi_rank = in.Int(4);
    if (!known || !verbs || !in.ok() || !in.at_end() || size > kMostRanks || from >= size ||
        to >= size || more > kMostTcpWays || mpi_rank > kMostMpiRank || checksum > 1 ||
        hidden > 1 || encryption > static_cast<uint64_t>(Encryption::kAlways) ||
        transport > static_cast<uint64_t>(Transport::kMpi)) {
        return MakeError(ErrorCode::kCorrupt,
                         "an offer of {} bytes for a data link is malformed. Do all hosts run the "
                         "same version of weft?",
                         bytes.size());
    }
    offer.from = static_cast<int>(from);
    offer.to = static_cast<int>(to);
    offer.mpi_rank = static_cast<int>(mpi_rank);
    offer.size = static_cast<int>(size);
    offer.transport = static_cast<Transport>(transport);
    offer.checksum = checksum == 1;
    offer.hidden = hidden == 1;
    offer.encryption = static_cast<Encryption>(encryption);
    std::memcpy(offer.token.data(), token.data(), offer.token.size());
    std::memcpy(offer.secret.data(), secret.data(), offer.secret.size());
    return offer;
}

std::string BootId() {
    std::ifstream file("/proc/sys/kernel/random/boot_id");
    std::string id;
    std::getline(file, id);
    return id;
}

std::string NetworkNamespace() {
    char target[64];
    const ssize_t length = ::readlink("/proc/self/ns/net", target, sizeof target);
    return length > 0 ? std::string(target, static_cast<size_t>(length)) : std::string();
}

std::string KernelId(const std::string& boot_id, const std::string& network) {
    return boot_id.empty() || network.empty() ? std::string() : boot_id + network;
}

namespace {

bool InOneKernel(const Offer& mine, const Offer& theirs) {
    const std::string kernel = KernelId(mine.boot_id, mine.network);
    return !kernel.empty() && kernel == KernelId(theirs.boot_id, theirs.network);
}

}  // namespace

bool IsEncrypted(const Offer& mine, const Offer& theirs) {
    return mine.encryption == Encryption::kAlways ||
           (mine.encryption == Encryption::kBetweenHosts && !InOneKernel(mine, theirs));
}

static const char* EncryptionWords(Encryption encryption) {
    return encryption == Encryption::kNever ? "does not encrypt" : "encrypts";
}

Status CheckSameOptions(const Offer& mine, const Offer& theirs, const std::string& name) {
    if (theirs.checksum != mine.checksum) {
        return MakeError(ErrorCode::kUsage,
                         "{} {} checksums, rank {} {}. Give all ranks --checksum, or none.", name,
                         theirs.checksum ? "sends" : "sends no", mine.from,
                         mine.checksum ? "does" : "does not");
    }
    if (theirs.encryption == mine.encryption) return {};
    return MakeError(ErrorCode::kUsage,
                     "{} {} tcp links between hosts, rank {} {}. Give all ranks --plain-links, or "
                     "none.",
                     name, EncryptionWords(theirs.encryption), mine.from,
                     EncryptionWords(mine.encryption));
}

Result<Transport> ChooseTransport(const Offer& mine, const Offer& theirs) {
    if (mine.transport != theirs.transport) {
        return MakeError(ErrorCode::kUsage,
                         "ranks {} and {} were given different transports: {} and {}. Give all "
                         "ranks the same --transport.",
                         mine.from, theirs.from, TransportName(mine.transport),
                         TransportName(theirs.transport));
    }
    const bool one_host = InOneKernel(mine, theirs);
    const bool one_mpi_job = !mine.mpi_job.empty() && mine.mpi_job == theirs.mpi_job;
    switch (mine.transport) {
        case Transport::kAuto:
            if (one_host && !mine.unix_name.empty() && !theirs.unix_name.empty()) {
                return Transport::kShm;
            }
            if (mine.verbs && theirs.verbs && WhyNotJoined(*mine.verbs, *theirs.verbs).empty()) {
                return Transport::kVerbs;
            }
            return one_mpi_job ? Transport::kMpi : Transport::kTcp;
        case Transport::kTcp: return Transport::kTcp;
        case Transport::kShm:
            if (one_host) return Transport::kShm;
            return MakeError(ErrorCode::kUsage,
                             "--transport shm joins ranks of one host, but ranks {} and {} are on "
                             "two (or in two network namespaces). Use --transport auto or tcp.",
                             mine.from, theirs.from);
        case Transport::kMpi:
            if (one_mpi_job) return Transport::kMpi;
            return MakeError(ErrorCode::kUsage,
                             "--transport mpi joins ranks that one MPI launcher started; ranks {} "
                             "and {} were not. Start all ranks by one mpirun, or use --transport "
                             "auto or tcp.",
                             mine.from, theirs.from);
        case Transport::kVerbs: break;
    }
    const std::string why = WhyNotVerbs(mine, theirs);
    if (why.empty() && mine.verbs && theirs.verbs) return Transport::kVerbs;
    return MakeError(ErrorCode::kNotFound, "--transport verbs: {}",
                     why.empty() ? "neither rank offers an RDMA device" : why);
}

std::string WhyNotVerbs(const Offer& mine, const Offer& theirs) {
    for (const Offer* offer : {&mine, &theirs}) {
        if (!offer->verbs_why.empty()) {
            return fmt::format("rank {}: {}", offer->from, offer->verbs_why);
        }
    }
    std::string why;
    if (mine.verbs && theirs.verbs) {
        why = WhyNotJoined(*mine.verbs, *theirs.verbs);
        if (!why.empty()) why = fmt::format("ranks {} and {}: {}", mine.from, theirs.from, why);
    } else if (mine.verbs || theirs.verbs) {
        why = fmt::format("rank {} has no RDMA device", mine.verbs ? theirs.from : mine.from);
    }
    return why;
}

}  // namespace weft::net
