// Built-in functions.
#include <time.h>

#include <algorithm>
#include <array>

#include "chat/template/arguments.h"
#include "chat/template/builtins.h"
#include "chat/template/print.h"

namespace weft::chat::jinja {
namespace {

constexpr int64_t kMostRange = 100'000;  // same limit as jinja2's sandbox
constexpr size_t kMostTimeFormat = 256;

constexpr std::string_view kFunctions[] = {"range", "namespace", "dict", "raise_exception",
                                           "strftime_now"};

Value Range(Meter& meter, const CallValues& values) {
    const Bound bound(meter, "range()", values, "start stop step");
    const bool one = !bound.Has(1);
    bound.Need(0);
    const int64_t start = one ? 0 : bound.Int(0, 0);
    const int64_t stop = one ? bound.Int(0, 0) : bound.Int(1, 0);
    const int64_t step = bound.Int(2, 1);
    if (step == 0) meter.Fail(ErrorCode::kCorrupt, "range(): the step is 0");
    ListBuilder list(meter);
    for (int64_t at = start; step > 0 ? at < stop : at > stop;) {
        if (static_cast<int64_t>(list.size()) >= kMostRange) {
            meter.Fail(ErrorCode::kCorrupt, "range(): more than {} numbers", kMostRange);
        }
        list.Add(Value(at));
        if (__builtin_add_overflow(at, step, &at)) break;
    }
    return std::move(list).Finish();
}

// Entries of dict(...) and namespace(...): from a dict or pairs, then the named arguments.
template <typename Add>
void ForEntries(Interpreter& in, const CallValues& values, Add add) {
    Meter& meter = in.meter();
    if (values.positional.size() > 1) {
        meter.Fail(ErrorCode::kCorrupt, "dict(): got {} positional arguments; it takes at most one",
                   values.positional.size());
    }
    for (const Value& value : values.positional) {
        if (value.Is(Kind::kDict)) {
            for (const Entry& entry : value.entries()) add(entry.first, entry.second);
            continue;
        }
        const auto pairs = Iterate(meter, in.Defined(value));
        for (const Value& pair : pairs->items) {
            const auto items = Iterate(meter, pair);
            if (items->items.size() != 2)
                meter.Fail(ErrorCode::kCorrupt, "dict(): an element is not a pair");
            add(items->items[0], items->items[1]);
        }
    }
    for (const auto& [name, value] : values.named) add(MakeText(meter, name), value);
}

Value Dict(Interpreter& in, const CallValues& values) {
    DictBuilder dict(in.meter());
    ForEntries(in, values, [&](const Value& key, const Value& value) { dict.Set(key, value); });
    return std::move(dict).Finish();
}

Value Namespace(Interpreter& in, const CallValues& values) {
    const Value space = in.NewSpace();
    ForEntries(in, values, [&](const Value& key, const Value& value) {
        if (!key.Is(Kind::kText)) {
            in.meter().Fail(ErrorCode::kCorrupt, "namespace(): a name is {}, expected a string",
                            key.type_name());
        }
        in.SetInSpace(space.space(), key.text().view(), value);
    });
    return space;
}

[[noreturn]] void Raise(Meter& meter, const CallValues& values) {
    const Bound bound(meter, "raise_exception()", values, "message");
    const Value text = Str(meter, bound.Need(0));
    throw Failure{
        MakeError(ErrorCode::kUsage,
                  "chat template, line {}: the model's template rejects this conversation: {}",
                  meter.line, text.text().view().substr(0, 1000))};
}

Value TimeText(Interpreter& in, const CallValues& values) {
    Meter& meter = in.meter();
    const Bound bound(meter, "strftime_now()", values, "format");
    const std::string format(bound.NeedText(0).view());
    if (format.size() > kMostTimeFormat) {
        meter.Fail(ErrorCode::kCorrupt, "strftime_now(): the format has {} bytes", format.size());
    }
    const time_t now = in.now_s();
    tm parts{};
    if (localtime_r(&now, &parts) == nullptr) {
        meter.Fail(ErrorCode::kCorrupt, "strftime_now(): the time is out of range");
    }
    // The leading space distinguishes an empty result from one that does not fit.
    std::array<char, 4096> text{};
    if (strftime(text.data(), text.size(), (" " + format).c_str(), &parts) == 0) {
        meter.Fail(ErrorCode::kCorrupt, "strftime_now(): the result has more than {} bytes",
                   text.size());
    }
    return MakeText(meter, text.data() + 1);
}

}  // namespace

bool IsFunction(std::string_view name) {
    return std::find(std::begin(kFunctions), std::end(kFunctions), name) != std::end(kFunctions);
}

Value CallFunction(Interpreter& in, std::string_view name, const CallValues& values) {
    if (name == "range") return Range(in.meter(), values);
    if (name == "namespace") return Namespace(in, values);
    if (name == "dict") return Dict(in, values);
    if (name == "strftime_now") return TimeText(in, values);
    Raise(in.meter(), values);
}

}  // namespace weft::chat::jinja
