#include "engine/drafts/draft_head.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "model_files/draft_source.h"

namespace weft::engine {

Status CheckDraftHead(const Job& job) {
    WEFT_ASSIGN(const auto source, OpenModelOf(job));
    WEFT_ASSIGN(const model::Hyper hyper, model::ReadHyper(*source));
    return model::CheckDraftHead(hyper, source->name());
}

namespace {

// Cost of a run of the head / cost of a step of one row. Both count the bytes of weights that are
// read: a row reads the experts of its route, and almost nothing of an embedding.
double RatioOf(const model_files::ModelSource& source, const model::Hyper& hyper) {
    const bool apart = !hyper.head.empty();
    const std::string layer =
        apart ? std::string(model_files::kDraftPrefix) : fmt::format("blk.{}.", hyper.layers);
    const double used = hyper.moe.experts == 0 ? 1
                                               : static_cast<double>(hyper.moe.used) /
                                                     static_cast<double>(hyper.moe.experts);
    const char* output = apart ? "output.weight" : "nextn.shared_head_head.weight";
    const bool own_output = source.FindTensor(layer + output) != nullptr;
    double head = 0, all = 0;
    for (const model_files::TensorInfo& tensor : source.tensors()) {
        const bool experts = tensor.name.find("_exps.") != tensor.name.npos;
        const double bytes = static_cast<double>(tensor.bytes) * (experts ? used : 1);
        const bool logits = tensor.name == (hyper.tied ? "token_embd.weight" : "output.weight");
        const bool own = tensor.name.starts_with(layer);
        const bool table = own && (tensor.name.ends_with(".nextn.embed_tokens.weight") ||
                                   tensor.name.ends_with(".token_embd.weight"));
        if ((own && !table) || (logits && !own_output)) head += bytes;
        if (!own && (logits || tensor.name != "token_embd.weight")) all += bytes;
    }
    return head / std::max(1.0, all);
}

}  // namespace

void DraftHead::Use(Rank& rank) {
    rank_ = &rank;
    ratio_ = RatioOf(rank.source(), rank.hyper());
    behind_ = false;
    costs_ = {};
}

void DraftHead::BeginStep(const StepData& step) {
    step_ = step;
    step_.kind = StepKind::kGuess;
    step_.copies.clear();
    step_.keyed.clear();
    step_.output_rows.clear();
    step_.tokens.clear();
    rows_.clear();
    behind_ = true;
}

// Rows of rejected drafts have no next token. Any token serves there, because the head's result is
// overwritten.
void DraftHead::AddText(int64_t id, std::span<const int32_t> text) {
    const size_t index = rows_.size();
    WEFT_CHECK(index < step_.sequences.size());
    const StepData::Sequence& s = step_.sequences[index];
    for (int32_t i = 0; i < s.row_count; ++i) {
        const auto next = static_cast<size_t>(s.position + i + 1);
        step_.tokens.push_back(next < text.size() ? text[next] : 0);
    }
    Row row;
    row.position = static_cast<int32_t>(text.size()) - 2;
    row.row = s.row_begin + row.position - s.position;
    row.adapter = s.adapter;
    const bool inside = row.row >= s.row_begin && row.row < s.row_begin + s.row_count;
    row.id = inside ? id : 0;
    rows_.push_back(row);
}

const DraftHead::Row* DraftHead::Find(int64_t id) const {
    const auto at = std::ranges::find(rows_, id, &Row::id);
    return behind_ && at != rows_.end() ? &*at : nullptr;
}

Status DraftHead::Run() {
    step_.number = ++*number_;
    step_.asks.clear();
    if (rank_->layout().pp > 1) RequestRows(rank_->hyper().vocab);
    return rank_->Run(step_);
}

// The last stage has the output rows, and sends rank 0 what a RowRequest names. A judge of drafts
// needs the probabilities of all tokens.
void DraftHead::RequestRows(int64_t vocab) {
    for (const Output& output : outputs_) {
        RowRequest ask;
        const Going& going = going_[output.index];
        if (going.text->own == nullptr && !rank_->maps_drafts()) {
            ask = going.sampler.Ask(false, vocab, output.place);
        }
        step_.asks.push_back(ask);
    }
}

Status DraftHead::Follow() {
    if (!std::exchange(behind_, false)) return {};
    step_.output_rows.clear();
    outputs_.clear();
    return Run();
}

// Row `row` of the next run gives the logits of a text's next token.
void DraftHead::AddOutput(int32_t row, size_t index, int64_t place) {
    step_.output_rows.push_back(row);
    outputs_.push_back({index, place});
}

// The texts that can have drafts, those with the fewest last, because they leave first.
void DraftHead::Gather(std::span<const DraftText> texts) {
    going_.clear();
    for (const DraftText& text : texts) {
        text.draft->clear();
        if (text.chances != nullptr) text.chances->clear();
        const Row* row = Find(text.id);
        if (row == nullptr || text.count == 0) continue;
        Going& going = going_.emplace_back();
        going.text = &text;
        going.at = *row;
        going.tokens.assign(text.tokens.begin(), text.tokens.end());
        going.sampler.Become(text.own != nullptr ? *text.own : *text.sampler);
    }
    std::ranges::stable_sort(going_, std::greater(),
                             [](const Going& going) { return going.text->count; });
}

// Draws a token for each output row.
Status DraftHead::Draw() {
    for (size_t i = 0; i < outputs_.size(); ++i) {
        Going& going = going_[outputs_[i].index];
        if (going.over) continue;
        WEFT_ASSIGN(const LogitsRow logits, rank_->DraftLogits(static_cast<int64_t>(i), logits_));
        const Status drawn = DrawGuess(*going.text, going.tokens, going.sampler, logits);
        if (drawn.ok()) continue;
        going.over = true;
        if (std::exchange(warned_, true)) continue;
        Log(LogLevel::kWarning, "--draft drafts no tokens: {}", drawn.error().message);
    }
    return {};
}

// One row for each of the first `count` texts: its last drafted token.
void DraftHead::NextRows(size_t count) {
    StartRun();
    for (size_t i = 0; i < count; ++i) {
        Going& going = going_[i];
        ++going.at.position;
        step_.Append(std::span(going.tokens).last(1), going.at.position, SequenceOf(going));
        AddOutput(static_cast<int32_t>(i), i, 0);
    }
}

// A block for each text.
void DraftHead::NextBlocks() {
    StartRun();
    const int64_t share = rank_->job().step_rows() / std::ssize(going_);
    std::vector<int32_t> block;
    for (size_t i = 0; i < going_.size(); ++i) {
        const Going& going = going_[i];
        const int64_t last = going.at.position + 1;
        const int64_t room = std::ssize(going.text->pages) * rank_->page_tokens() - last;
        const int64_t rows = std::min({rank_->block_rows(), room, share});
        if (rows < 2) continue;
        block.assign(static_cast<size_t>(rows), static_cast<int32_t>(rank_->hyper().head[0].mask));
        block[0] = going.tokens.back();
        const auto first = static_cast<int32_t>(step_.tokens.size());
        step_.Append(block, last, SequenceOf(going));
        const auto drafts = static_cast<int32_t>(std::min(going.text->count, rows - 1));
        for (int32_t draft = 0; draft < drafts; ++draft) AddOutput(first + draft + 1, i, draft);
    }
}

// A further run without rows, for the same texts.
void DraftHead::StartRun() {
    StepData next;
    next.kind = StepKind::kGuessOn;
    next.wanted = step_.wanted;
    step_ = std::move(next);
    outputs_.clear();
}

StepData::Sequence DraftHead::SequenceOf(const Going& going) {
    StepData::Sequence sequence;
    sequence.pages.assign(going.text->pages.begin(), going.text->pages.end());
    sequence.adapter = going.at.adapter;
    sequence.state_to = 0;  // the head has no recurrent state
    return sequence;
}

Status DraftHead::Guess(std::span<const DraftText> texts) {
    Gather(texts);
    if (going_.empty()) return Follow();
    step_.wanted = {};
    step_.wanted.columns = rank_->hyper().vocab;
    step_.wanted.whole = rank_->maps_drafts();
    for (const Going& going : going_) {
        if (!rank_->maps_drafts()) going.sampler.Want(false, step_.wanted);
    }
    WEFT_TRY(at_once() ? AtOnce() : OneByOne());
    for (const Going& going : going_) {
        if (going.text->own != nullptr) going.text->own->Become(going.sampler);
    }
    return {};
}

Status DraftHead::AtOnce() {
    WEFT_TRY(Follow());
    const int64_t begin_ns = NowNs();
    NextBlocks();
    if (step_.tokens.empty()) return {};
    WEFT_TRY(Run());
    costs_.Learn(std::ssize(going_), SecondsSince(begin_ns));
    return Draw();
}

Status DraftHead::OneByOne() {
    behind_ = false;
    outputs_.clear();
    for (size_t i = 0; i < going_.size(); ++i) AddOutput(going_[i].at.row, i, 0);
    size_t count = going_.size();
    for (int64_t drawn = 0;;) {
        const int64_t begin_ns = NowNs();
        const bool on = step_.kind == StepKind::kGuessOn;
        WEFT_TRY(Run());
        if (on) costs_.Learn(static_cast<int64_t>(count), SecondsSince(begin_ns));
        WEFT_TRY(Draw());
        ++drawn;
        while (count > 0 && going_[count - 1].text->count <= drawn) --count;
        if (count == 0) return {};
        NextRows(count);
    }
}

}  // namespace weft::engine
