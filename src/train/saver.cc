#include "train/saver.h"

#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <mutex>
#include <set>
#include <span>
#include <thread>
#include <utility>

#include "base/deadline.h"
#include "base/log.h"
#include "base/on_threads.h"
#include "hw/cpu.h"
#include "train/checkpoint/source.h"
#include "train/output_folder.h"
#include "train/process_work.h"

namespace weft::train {
namespace {

using model_files::hf::Json;

// A rank may take this much longer than the others to write its file to a slow disk or over a
// network; heartbeats detect a lost rank.
constexpr int64_t kSaveMs = 3'600'000;
// A disk that is full for a moment is checked again.
constexpr int kSpaceTries = 3;
constexpr int64_t kSpaceMs = 500;

}  // namespace

Status CheckSaveOptions(const SaveOptions& words) {
    if (words.every < 0 || words.keep < 0 || words.keep > 1'000'000 || words.max_restarts < 0) {
        return MakeError(ErrorCode::kUsage,
                         "--save-every {} --keep-last {} --max-restarts {}: expected 0 or more",
                         words.every, words.keep, words.max_restarts);
    }
    const bool needs_folder = words.every > 0 || words.resume == "auto";
    if (!needs_folder || !words.folder.empty()) return {};
    return MakeError(ErrorCode::kUsage,
                     "--save-every and --resume auto need --output-dir DIR: "
                     "checkpoints lie in DIR/checkpoints");
}

namespace {

std::span<float> Floats(std::span<std::byte> bytes) {
    return {reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float)};
}

}  // namespace

std::vector<Piece> PiecesOf(const TrainState& state, const UpdateRule& rule,
                            const model_files::ModelSource& source,
                            const std::shared_ptr<const backend::HostSnapshot>& snapshot) {
    std::vector<KeptPiece> all;
    std::map<std::pair<std::string, std::string>, size_t> last;  // by kind and tensor
    const auto add = [&](KeptPiece piece) {
        const auto [known, first] =
            last.try_emplace({piece.array.kind, piece.array.tensor}, all.size());
        if (!first) {
            KeptPiece& before = all[known->second];
            const bool adjoins = before.value == piece.value && before.scales == piece.scales &&
                                 before.first + before.region.elements() == piece.first;
            if (adjoins && Extend(before.region, piece.region)) return;
            known->second = all.size();
        }
        all.push_back(std::move(piece));
    };
    for (const OwnPart& part : state.parts()) {
        VisitPieces(part, Extent::kSole, [&](const MemberPiece& piece) {
            const model_files::TensorInfo* tensor = source.FindTensor(piece.tensor());
            WEFT_CHECK(tensor != nullptr);
            add({ArrayOf(*tensor, kWeightKind), piece.region, part.weights, piece.own});
        });
    }
    rule.VisitKeptPieces(Extent::kSole, add);
    std::vector<Piece> pieces;
    for (const KeptPiece& kept : all) {
        const auto read = [snapshot, kept](int64_t begin, std::span<std::byte> out) {
            return ReadKeptPiece(*snapshot, kept, begin, Floats(out));
        };
        pieces.push_back({kept.array, kept.region, {}, read});
    }
    return pieces;
}

namespace {

// Reads the values directly, while nothing runs.
class NoCopy final : public backend::HostSnapshot {
  public:
    explicit NoCopy(backend::Executable& executable) : executable_(executable) {}
    Status Read(program::ValueId id, int64_t first_byte, std::span<std::byte> out) const override {
        return executable_.Read(id, first_byte, out);
    }

  private:
    backend::Executable& executable_;
};

// A snapshot of all state that a checkpoint keeps, for the writer's thread. Errors: kOutOfMemory;
// as Read.
Result<std::unique_ptr<backend::HostSnapshot>> SnapshotOf(const TrainState& state,
                                                          const UpdateRule& rule) {
    std::set<program::ValueId> ids;
    for (const OwnPart& part : state.parts()) {
        if (!part.sole.empty()) ids.insert(part.weights);
    }
    rule.VisitKeptPieces(Extent::kSole, [&](const KeptPiece& kept) {
        ids.insert(kept.value);
        if (kept.scales != program::kNoValue) ids.insert(kept.scales);
    });
    return state.training().Snapshot(std::vector<program::ValueId>(ids.begin(), ids.end()));
}

// Network file systems show another host's writes with a delay.
bool SeesFolder(const std::string& folder, const std::string& token) {
    constexpr int64_t kMostMs = 3000, kNapMs = 100;
    if (token.empty()) return false;
    const Deadline deadline = Deadline::In(kMostMs);
    while (FolderToken(folder) != token) {
        if (deadline.expired()) return false;
        std::this_thread::sleep_for(std::chrono::milliseconds(kNapMs));
    }
    return true;
}

// The disk of a folder's checkpoints, which need not exist yet. Unique within a host; 0: unknown.
uint64_t DiskOf(const std::string& folder) {
    struct stat status {};
    for (auto at = std::filesystem::path(folder) / kCheckpointsName; at.has_relative_path();
         at = at.parent_path()) {
        if (::stat(at.c_str(), &status) == 0) return status.st_dev;
    }
    return 0;
}

// A part of a piece, to bound memory.
struct KeptPart {
    size_t piece;
    int64_t begin;
};
constexpr int64_t kKeptPart = 256 * kKeptGrain;
constexpr size_t kMostKeptReaders = 8;

// Threads read and check the parts; one at a time writes to the device.
Status ReadInParts(const Checkpoint& checkpoint, backend::Executable& training,
                   std::span<const KeptPiece> pieces) {
    std::vector<KeptPart> parts;
    for (size_t i = 0; i < pieces.size(); ++i) {
        for (int64_t at = 0; at < pieces[i].region.elements(); at += kKeptPart) {
            parts.push_back({i, at});
        }
    }
    std::mutex writes;
    const size_t threads = std::min(kMostKeptReaders, AllowedCores().size());
    return OnThreads(threads, parts.size(), [&](size_t index) -> Status {
        const auto [piece, begin] = parts[index];
        const KeptPiece& kept = pieces[piece];
        TensorRegion part = kept.region;
        part.begin += begin;
        part.end = std::min(part.end, part.begin + kKeptPart);
        std::vector<float> values(static_cast<size_t>(part.elements()));
        WEFT_TRY(checkpoint.Read(kept.array, part, std::as_writable_bytes(std::span(values))));
        const std::lock_guard lock(writes);
        return WriteKeptPiece(training, kept, begin, values);
    });
}

}  // namespace

bool HasWeights(const TrainState& state, const Checkpoint& checkpoint) {
    return std::ranges::all_of(checkpoint.manifest().arrays, [&](const Array& array) {
        return array.kind != kWeightKind || state.trained_tensors().contains(array.tensor);
    });
}

Status ReadKept(const Checkpoint& checkpoint, const TrainState& state, const UpdateRule& rule,
                const UpdateOptions& options, bool averages) {
    const char* const average = AverageKind(options);
    Status status;
    std::vector<KeptPiece> pieces;
    rule.VisitKeptPieces(Extent::kOwn, [&](const KeptPiece& kept) {
        if (!status.ok()) return;
        if (!averages && average != nullptr && kept.array.kind == average) return;
        if (checkpoint.Find(kept.array.kind, kept.array.tensor) == nullptr) {
            const Json& saved = checkpoint.manifest().state;
            const auto named = saved.find("optimizer");  // the end if `saved` is not an object
            const bool known = named != saved.end() && named->is_string();
            const std::string of = known ? named->get<std::string>() : "another kind";
            const std::string_view wanted = UpdateName(options.kind);
            const bool same = of == wanted;
            status = MakeError(
                ErrorCode::kUsage,
                "{}: was written with --optimizer {}{} and has no {}, which {}{} needs. Resume "
                "with the {} of the checkpoint",
                checkpoint.folder(), of, same ? " of another weft" : "", kept.array.Name(), wanted,
                same ? " of this weft" : "", same ? "weft" : "optimizer");
            return;
        }
        pieces.push_back(kept);
    });
    if (!status.ok()) return status;
    return ReadInParts(checkpoint, state.training(), pieces);
}

Result<SavePlace> AgreeOnPlace(const SaveOptions& words, cluster::Cluster& cluster,
                               const TrainState& state, const UpdateRule& rule,
                               const model_files::ModelSource& source) {
    SavePlace place;
    std::vector<StoredPiece> stored;
    for (const Piece& piece : PiecesOf(state, rule, source, nullptr)) {
        place.own_bytes += piece.bytes();
        stored.push_back({piece.array, piece.region, 0, {}});
    }
    const Status readable = CheckRankHeader(stored);
    if (!readable.ok()) {
        return MakeError(readable.error().code, "rank {}: {}", cluster.rank(),
                         readable.error().message);
    }
    const bool root = cluster.rank() == 0;
    WEFT_ASSIGN(const std::vector<std::string> tokens,
                cluster.AllGather("folder of checkpoints", root ? FolderToken(words.folder) : "",
                                  Deadline::In(kAgreeMs)));
    place.shared = root || SeesFolder(words.folder, tokens.front());
    const uint64_t disk = place.shared ? 0 : DiskOf(words.folder);
    const Json mine = {{"shared", place.shared}, {"bytes", place.own_bytes}, {"disk", disk}};
    WEFT_ASSIGN(const std::vector<std::string> texts,
                cluster.AllGather("place of checkpoints", mine.dump(), Deadline::In(kAgreeMs)));
    const int self = cluster.rank();
    for (int rank = 0; std::cmp_less(rank, texts.size()); ++rank) {
        WEFT_ASSIGN(const Json said, model_files::hf::ParseJson(texts[static_cast<size_t>(rank)],
                                                                "a rank's report of its folder"));
        const bool shared = said.value("shared", false);
        const auto bytes = said.value("bytes", uint64_t{0});
        if (shared) place.here_bytes += bytes;
        const bool beside = rank != self && !shared && !place.shared &&
                            cluster.host(rank).boot_id == cluster.host(self).boot_id &&
                            said.value("disk", uint64_t{0}) == disk;
        if (beside) place.own_bytes += bytes;
        place.all_shared = place.all_shared && shared;
    }
    return place;
}

Saver::Saver(const SaveOptions& words, cluster::Cluster& cluster, const TrainState& state,
             const UpdateRule& rule, const model_files::ModelSource& source, std::string model)
    : words_(words),
      cluster_(cluster),
      state_(state),
      rule_(rule),
      source_(source),
      writer_(words.folder, cluster.rank(), cluster.cores()) {
    manifest_.model = std::move(model);
    if (const auto fingerprint = source.Fingerprint(); fingerprint.ok()) {
        manifest_.fingerprint = *fingerprint;
    }
    for (const std::string& name : state.trained_tensors()) {
        const model_files::TensorInfo* tensor = source.FindTensor(name);
        WEFT_CHECK(tensor != nullptr);
        manifest_.arrays.push_back(ArrayOf(*tensor, kWeightKind));
    }
    for (Array& array : rule.Arrays(state.trained_tensors())) {
        manifest_.arrays.push_back(std::move(array));
    }
}

Status Saver::Begin(int64_t step, Json state, SaveSpace room) {
    if (under_way_) WEFT_TRY(Finish());
    const int64_t begin_ns = NowNs();
    const WorkScope writes(cluster_, state_.training());
    WEFT_ASSIGN(const bool fits, AgreeOnSpace(PlanFor(room)));
    if (!fits) return {};
    manifest_.step = step;
    manifest_.state = std::move(state);
    keep_ = room == SaveSpace::kSpare ? 0 : static_cast<int>(words_.keep);
    auto copied = SnapshotOf(state_, rule_);
    const bool waits = !copied.ok() && copied.error().code == ErrorCode::kOutOfMemory;
    if (!copied.ok() && !waits) return copied.error();
    std::unique_ptr<backend::HostSnapshot> snapshot;
    if (waits) {
        Log(LogLevel::kWarning, "updates wait while the checkpoint of step {} is written: {}", step,
            copied.error().message);
        snapshot = std::make_unique<NoCopy>(state_.training());
    } else {
        snapshot = std::move(copied).value();
    }
    std::vector<Piece> pieces = PiecesOf(state_, rule_, source_, std::move(snapshot));
    // A rank whose data other ranks also hold writes nothing.
    begun_ = pieces.empty() ? Status() : writer_.Start(step, std::move(pieces));
    if (waits && writer_.running()) written_ = writer_.Finish();
    under_way_ = true;
    counts_.waited_s += SecondsSince(begin_ns);
    return {};
}

// Folders that saves neither count nor remove.
std::vector<std::string> Saver::Untouched() const {
    std::vector<std::string> folders = bad_;
    if (!best_.empty()) folders.push_back(best_);
    return folders;
}

// The plan for this rank's disk. A rank that writes to rank 0's disk needs no space on its own.
SpacePlan Saver::PlanFor(SaveSpace room) const {
    SpacePlan plan;
    if (cluster_.rank() == 0) {
        plan = room_;
        if (room == SaveSpace::kWithoutResult) plan.result_bytes = 0;
        plan.removes_old = room != SaveSpace::kSpare;
        return plan;
    }
    plan.folder = words_.folder;
    plan.checkpoint_bytes = place_.own_bytes;
    plan.removes_old = false;
    return plan;
}

// All ranks check their disks before rank 0 removes anything: no checkpoint is removed for one that
// another rank can't write.
Result<bool> Saver::AgreeOnSpace(const SpacePlan& plan) {
    constexpr char kOldGo = '+', kFull = '-';  // the first letter of a rank's message
    const auto look = [&]() -> std::string {
        if (place_.shared && cluster_.rank() != 0) return "";
        std::error_code ignored;
        std::filesystem::create_directories(plan.folder, ignored);
        const auto fits = CheckSpaceNow(plan, Untouched());
        if (!fits.ok()) return kFull + fits.error().message;
        return *fits ? "" : std::string(1, kOldGo);
    };
    std::string mine = look();
    for (int tries = 0; mine.starts_with(kFull) && tries < kSpaceTries; ++tries) {
        std::this_thread::sleep_for(std::chrono::milliseconds(kSpaceMs));
        mine = look();
    }
    WEFT_ASSIGN(const std::vector<std::string> texts,
                cluster_.AllGather("room for a checkpoint", mine, Deadline::In(kAgreeMs)));
    const auto full =
        std::ranges::find_if(texts, [&](const auto& text) { return text.starts_with(kFull); });
    if (full != texts.end()) {
        Note(full->substr(1));
        return false;
    }
    if (!texts.front().starts_with(kOldGo)) return true;
    const Status made = cluster_.rank() == 0 ? MakeSpace(plan, Untouched()) : Status();
    WEFT_ASSIGN(const std::vector<std::string> verdicts,
                cluster_.AllGather("room is made", made.ok() ? "" : made.error().message,
                                   Deadline::In(kAgreeMs)));
    if (verdicts.front().empty()) return true;
    Note(verdicts.front());
    return false;
}

// Records the outcome of a save; empty: it succeeded.
void Saver::Note(const std::string& fault) {
    (fault.empty() ? counts_.saved : counts_.failed)++;
    fault_ = fault;
}

Status Saver::Finish() {
    if (!under_way_) return {};
    under_way_ = false;
    const int64_t begin_ns = NowNs();
    const WorkScope writes(cluster_, state_.training());
    Json mine = Json::object();
    std::string written;
    if (!begun_.ok()) {
        mine["error"] = begun_.error().message;
    } else if (writer_.running() || written_) {
        const auto file = written_ ? *std::exchange(written_, {}) : writer_.Finish();
        file.ok() ? mine["file"] = FileText(*file) : mine["error"] = file.error().message;
        if (file.ok()) written = StepFolder(words_.folder, manifest_.step) + "/" + file->name;
    }
    WEFT_ASSIGN(const std::vector<std::string> texts,
                cluster_.AllGather("checkpoint", mine.dump(-1, ' ', true), Deadline::In(kSaveMs)));
    const bool failed = std::ranges::any_of(
        texts, [](const auto& text) { return text.find("\"error\"") != text.npos; });
    // Remove the files of a failed checkpoint, which use disk space.
    std::error_code ignored;
    if (failed && !written.empty()) std::filesystem::remove(written, ignored);
    std::string verdict;
    if (cluster_.rank() == 0) {
        const Status done = Commit(texts);
        if (!done.ok()) RemoveUnfinished(words_.folder, manifest_);
        if (!done.ok()) verdict = done.error().message;
    }
    WEFT_ASSIGN(const std::vector<std::string> verdicts,
                cluster_.AllGather("is the checkpoint there", verdict, Deadline::In(kAgreeMs)));
    Note(verdicts.front());
    if (fault_.empty()) last_ = StepFolder(words_.folder, manifest_.step);
    if (!place_.all_shared) WEFT_TRY(RemoveOld());
    const double waited_s = SecondsSince(begin_ns);
    counts_.waited_s += waited_s;
    Log(LogLevel::kDebug, "checkpoint of step {}: waited {:.3f} s for it", manifest_.step,
        waited_s);
    return {};
}

// On all ranks: a rank that writes to its own disk keeps the steps that rank 0 keeps, because only
// rank 0 can tell which are complete.
Status Saver::RemoveOld() {
    Json mine = Json::array();
    if (cluster_.rank() == 0 && fault_.empty()) {
        for (const std::string& folder : ListCheckpoints(words_.folder, nullptr)) {
            mine.push_back(std::filesystem::path(folder).filename().string());
        }
    }
    WEFT_ASSIGN(const std::vector<std::string> texts,
                cluster_.AllGather("checkpoints that are kept",
                                   mine.dump(-1, ' ', true, Json::error_handler_t::replace),
                                   Deadline::In(kAgreeMs)));
    if (place_.shared) return {};
    WEFT_ASSIGN(const Json said, model_files::hf::ParseJson(texts.front(), "rank 0's checkpoints"));
    std::vector<std::string> kept;
    for (const Json& name : said) {
        if (name.is_string()) kept.push_back(name.get<std::string>());
    }
    if (!kept.empty()) RemoveOthers(words_.folder, kept);
    return {};
}

Status Saver::Commit(const std::vector<std::string>& texts) {
    manifest_.files.clear();
    for (const std::string& text : texts) {
        WEFT_ASSIGN(const Json said,
                    model_files::hf::ParseJson(text, "a rank's report of its checkpoint"));
        if (said.contains("error")) {
            return MakeError(ErrorCode::kIo, "{}", said.at("error").get<std::string>());
        }
        if (!said.contains("file")) continue;
        WEFT_ASSIGN(CheckpointFile file, ParseFile(said.at("file").get<std::string>(),
                                                   "a rank's report of its checkpoint"));
        manifest_.files.push_back(std::move(file));
    }
    return CommitCheckpoint(words_.folder, manifest_, keep_, Untouched());
}

}  // namespace weft::train
