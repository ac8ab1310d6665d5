#include "train/saver.h"

#include <algorithm>
#include <array>
#include <functional>

#include "base/deadline.h"
#include "base/log.h"
#include "train/checkpoint/source.h"

namespace weft::train {
namespace {

using formats::hf::Json;
using program::Unit;

constexpr int64_t kAgreeMs = 600'000;
constexpr const char* kMomentKinds[] = {"adam_m", "adam_v"};

Array ArrayOf(const formats::TensorInfo& tensor, const char* kind) {
    return {kind, tensor.name, tensor.rows, tensor.cols, SafeType::kF32};
}

// The block of its tensor that a unit's member is; a vector is one row.
Region BlockOf(const program::Value& weight) {
    const Holding h = HoldingOf(weight);
    if (weight.shape.rank > 1) return {h.row, h.rows, h.col, h.cols, 0, h.rows * h.cols};
    return {0, 1, h.row, h.rows, 0, h.rows};
}

// Of a member, elements [range.begin, range.end) of the unit: visit(tensor's name, region, where
// that begins in the own part). Nothing where they don't meet.
using Visit = std::function<void(const std::string& tensor, const Region& region, int64_t own)>;
void VisitMembers(const OwnPart& part, const ElementRange& range, const Visit& visit) {
    for (const Unit::Member& member : part.unit->members) {
        Region region = BlockOf(member.weight);
        const int64_t begin = std::max(range.begin, member.begin);
        const int64_t end = std::min(range.end, member.begin + region.end);
        if (begin >= end) continue;
        region.begin = begin - member.begin;
        region.end = end - member.begin;
        visit(member.weight.slice.name, region, begin - part.unit->own_begin);
    }
}

double SecondsSince(int64_t begin_ns) {
    return static_cast<double>(NowNs() - begin_ns) * 1e-9;
}

}  // namespace

Status CheckSaveWords(const SaveWords& words) {
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

std::vector<Piece> PiecesOf(const TrainState& state, const formats::ModelSource& source) {
    std::vector<Piece> pieces;
    for (const OwnPart& part : state.parts()) {
        const std::span<const float> moments[] = {part.m, part.v};
        const auto add = [&](const std::string& name, const Region& region, int64_t own) {
            const formats::TensorInfo* tensor = source.FindTensor(name);
            WEFT_CHECK(tensor != nullptr);
            const auto begin = static_cast<size_t>(own);
            const auto count = static_cast<size_t>(region.elements());
            const auto bytes = [&](std::span<const float> of) {
                return std::as_bytes(of.subspan(begin, count));
            };
            pieces.push_back({ArrayOf(*tensor, kWeightKind), region, bytes(part.weights)});
            for (size_t i = 0; i < 2; ++i) {
                pieces.push_back({ArrayOf(*tensor, kMomentKinds[i]), region, bytes(moments[i])});
            }
        };
        for (const ElementRange& sole : part.sole) VisitMembers(part, sole, add);
    }
    return pieces;
}

Status ReadMoments(const Checkpoint& checkpoint, const formats::ModelSource& source,
                   TrainState& state) {
    Status status;
    for (OwnPart& part : state.parts()) {
        const std::span<float> moments[] = {part.m, part.v};
        const Unit& unit = *part.unit;
        const ElementRange own{unit.own_begin, unit.own_begin + unit.own_count};
        VisitMembers(part, own, [&](const std::string& name, const Region& region, int64_t begin) {
            const formats::TensorInfo* tensor = source.FindTensor(name);
            WEFT_CHECK(tensor != nullptr);
            for (size_t i = 0; i < 2 && status.ok(); ++i) {
                const auto to = moments[i].subspan(static_cast<size_t>(begin),
                                                   static_cast<size_t>(region.elements()));
                status = checkpoint.Read(ArrayOf(*tensor, kMomentKinds[i]), region,
                                         std::as_writable_bytes(to));
            }
        });
        WEFT_TRY(status);
    }
    return {};
}

Saver::Saver(const SaveWords& words, cluster::Cluster& cluster, const TrainState& state,
             const formats::ModelSource& source, std::string model)
    : words_(words),
      cluster_(cluster),
      state_(state),
      source_(source),
      writer_(words.folder, cluster.rank(), cluster.cores()) {
    manifest_.model = std::move(model);
    for (const std::string& name : state.trained_tensors()) {
        const formats::TensorInfo* tensor = source.FindTensor(name);
        WEFT_CHECK(tensor != nullptr);
        for (const char* kind : {kWeightKind, kMomentKinds[0], kMomentKinds[1]}) {
            manifest_.arrays.push_back(ArrayOf(*tensor, kind));
        }
    }
}

Status Saver::Begin(int64_t step, Json state) {
    if (under_way_) WEFT_TRY(Finish());
    const int64_t begin_ns = NowNs();
    manifest_.step = step;
    manifest_.state = std::move(state);
    std::vector<Piece> pieces = PiecesOf(state_, source_);
    // A rank beside which others hold all that it has writes nothing.
    begun_ = pieces.empty() ? Status() : writer_.Start(step, std::move(pieces));
    under_way_ = true;
    counts_.waited_s += SecondsSince(begin_ns);
    return {};
}

Status Saver::Finish() {
    if (!under_way_) return {};
    under_way_ = false;
    const int64_t begin_ns = NowNs();
    Json mine = Json::object();
    if (!begun_.ok()) {
        mine["error"] = begun_.error().message;
    } else if (writer_.running()) {
        const auto file = writer_.Finish();
        file.ok() ? mine["file"] = FileText(*file) : mine["error"] = file.error().message;
    }
    WEFT_ASSIGN(const std::vector<std::string> texts,
                cluster_.AllGather("checkpoint", mine.dump(-1, ' ', true), Deadline::In(kAgreeMs)));
    if (cluster_.rank() == 0) {
        const Status done = Commit(texts);
        (done.ok() ? counts_.saved : counts_.failed)++;
        if (!done.ok()) {
            Log(LogLevel::kWarning, "{}. Training goes on", done.error().message);
        }
    }
    const double waited_s = SecondsSince(begin_ns);
    counts_.waited_s += waited_s;
    Log(LogLevel::kDebug, "checkpoint of step {}: waited {:.3f} s for it", manifest_.step,
        waited_s);
    return {};
}

Status Saver::Commit(const std::vector<std::string>& texts) {
    manifest_.files.clear();
    for (const std::string& text : texts) {
        WEFT_ASSIGN(const Json said,
                    formats::hf::ParseJson(text, "a rank's word of its checkpoint"));
        if (said.contains("error")) {
            return MakeError(ErrorCode::kIo, "{}", said.at("error").get<std::string>());
        }
        if (!said.contains("file")) continue;
        WEFT_ASSIGN(CheckpointFile file, ParseFile(said.at("file").get<std::string>(),
                                                   "a rank's word of its checkpoint"));
        manifest_.files.push_back(std::move(file));
    }
    WEFT_TRY(CommitCheckpoint(words_.folder, manifest_, static_cast<int>(words_.keep)));
    last_ = StepFolder(words_.folder, manifest_.step);
    return {};
}

}  // namespace weft::train
