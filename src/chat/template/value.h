// Values of template expressions, with Python's behavior in jinja2: numbers, strings, lists,
// tuples, dicts, and Undefined for missing values.
//
// Lists and dicts are immutable (as in jinja2's immutable sandbox, which runs chat templates), so
// values can be shared and never form cycles. Only a namespace is mutable; the rendering owns it.
// Every value on the heap is charged to the rendering's Meter.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "chat/template/meter.h"
#include "chat/text.h"

namespace weft::chat::jinja {

class Value;
struct MacroBody;
class Scope;

struct Undefined {
    std::string_view name;  // name of the missing value, for messages; a view into the syntax tree
};
struct None {};

struct DictData;
// A message's content (MakeContent) works in templates that expect a string and in templates that
// expect a list of parts. It is either a text that a loop sees as one part, or a list that prints
// as the joined texts of its parts. The type that a template sees is the form that the client used.
struct TextData {
    Text text;
    Charge charge;
    bool content = false;
    bool digits = false;  // an integer beyond 64 bits: a text that tojson does not quote
    // set in the character that content[0] or content[-1] returns: the part, whose members the
    // character also has
    std::shared_ptr<const DictData> part{};
};
struct ListData {
    std::vector<Value> items;
    bool tuple = false;
    int depth = 1;
    Charge charge;
    bool content = false;
};
using Entry = std::pair<Value, Value>;
struct DictData {
    std::vector<Entry> entries;  // in insertion order; keys are distinct
    int depth = 1;
    Charge charge;
    bool part = false;  // a part of a content; prints as its text
};
struct Space {  // namespace(...)
    std::vector<std::pair<std::string, Value>> entries;
    Charge charge;
};
struct Macro {
    const MacroBody* body;
    std::weak_ptr<Scope> scope;  // scope of its definition; a macro does not outlive it
};
struct Loop;    // variable `loop` of a `for` statement
struct Method;  // a bound method or a function

enum class Kind {
    kUndefined,
    kNone,
    kBool,
    kInt,
    kFloat,
    kText,
    kList,
    kDict,
    kSpace,
    kMacro,
    kLoop,
    kMethod,
};

class Value {
  public:
    using Data = std::variant<Undefined, None, bool, int64_t, double,
                              std::shared_ptr<const TextData>, std::shared_ptr<const ListData>,
                              std::shared_ptr<const DictData>, Space*, std::shared_ptr<const Macro>,
                              std::shared_ptr<const Loop>, std::shared_ptr<const Method>>;

    Value() = default;
    Value(Data data) : data_(std::move(data)) {}  // NOLINT: implicit on purpose

    Kind kind() const { return static_cast<Kind>(data_.index()); }
    bool Is(Kind kind_) const { return kind() == kind_; }
    bool IsNumber() const { return Is(Kind::kBool) || Is(Kind::kInt) || Is(Kind::kFloat); }
    bool IsInteger() const { return Is(Kind::kBool) || Is(Kind::kInt); }

    // Each accessor requires a value of the matching kind.
    std::string_view undefined_name() const { return std::get<Undefined>(data_).name; }
    int64_t integer() const;  // bool and int
    double number() const;    // bool, int and float
    const Text& text() const { return std::get<5>(data_)->text; }
    bool IsContent() const;
    bool IsDigits() const { return Is(Kind::kText) && std::get<5>(data_)->digits; }
    bool IsPart() const;  // whether it is a part of a content
    // The part at content[0], or undefined.
    Value part() const;
    const std::shared_ptr<const ListData>& list() const { return std::get<6>(data_); }
    const std::vector<Value>& items() const { return std::get<6>(data_)->items; }
    const std::shared_ptr<const DictData>& dict() const { return std::get<7>(data_); }
    const std::vector<Entry>& entries() const { return std::get<7>(data_)->entries; }
    Space& space() const { return *std::get<Space*>(data_); }
    const Macro& macro() const { return *std::get<9>(data_); }
    const Loop& loop() const { return *std::get<10>(data_); }
    const Method& method() const { return *std::get<11>(data_); }

    bool truth() const;
    // Nesting depth of lists and dicts; 0 for other kinds.
    int depth() const;
    // "string", "list", "undefined"; for messages.
    std::string_view type_name() const;

  private:
    Data data_;
};

struct Loop {
    std::shared_ptr<const ListData> items;
    size_t at;
};

struct Method {
    Value self;             // undefined for a function
    std::string_view name;  // a view into the syntax tree or static storage
};

// Builds a text; charges its bytes to the Meter as it grows.
class TextBuilder {
  public:
    explicit TextBuilder(Meter& meter) : meter_(meter), charge_(&meter) {}
    void Append(const Text& text) { AppendCut(text, 0, text.size()); }
    void Append(std::string_view bytes, uint32_t source = 0);
    void AppendCut(const Text& text, size_t begin, size_t end);
    const Text& text() const { return text_; }
    Meter& meter() const { return meter_; }
    Value Finish(bool content = false, std::shared_ptr<const DictData> part = nullptr) &&;

  private:
    Meter& meter_;
    Text text_;
    Charge charge_;
};

// Builds a list; charges its bytes to the Meter as it grows.
class ListBuilder {
  public:
    explicit ListBuilder(Meter& meter) : meter_(meter), charge_(&meter) {}
    void Add(Value value);
    void AddCut(const Text& text, size_t begin, size_t end);
    size_t size() const { return items_.size(); }
    Value Finish(bool tuple = false, bool content = false) &&;

  private:
    Meter& meter_;
    std::vector<Value> items_;
    int depth_ = 0;
    Charge charge_;
};

class DictBuilder {
  public:
    explicit DictBuilder(Meter& meter) : meter_(meter), charge_(&meter) {}
    // A later value for the same key wins. Keys: text, number, bool or none.
    void Set(const Value& key, Value value);
    // Adds a key that the value does not have yet.
    void Add(Value key, Value value);
    Value Finish(bool part = false) &&;

  private:
    Meter& meter_;
    std::vector<Entry> entries_;
    int depth_ = 0;
    Charge charge_;
};

Value MakeText(Meter& meter, Text text);
Value MakeText(Meter& meter, std::string_view bytes, uint32_t source = 0);
Value MakeDigits(Meter& meter, std::string_view digits, uint32_t source);
// A text of the template itself, without a meter.
Value MakeConstant(std::string bytes);
// A message's content, from one string or from the texts of a list of parts.
Value MakeContent(Meter& meter, std::string_view text, uint32_t source);
Value MakeContent(Meter& meter, const std::vector<std::string_view>& parts, uint32_t source);
Value MakePair(Meter& meter, Value first, Value second);
Value MakeMethod(Value self, std::string_view name);

// Python's ==; defined for any two values.
bool Equal(Meter& meter, const Value& a, const Value& b);
// Python's <, for two numbers, texts or lists; fails for others.
bool Less(Meter& meter, const Value& a, const Value& b);
// `needle in place`.
bool Contains(Meter& meter, const Value& place, const Value& needle);
// The value for a key, or null.
const Value* Lookup(Meter& meter, const Value& dict, std::string_view key);
const Value* Lookup(Meter& meter, const Value& dict, const Value& key);
// The values of a `for` loop: a list's items, a dict's keys, a content's parts, a text's
// characters; none for undefined.
std::shared_ptr<const ListData> Iterate(Meter& meter, const Value& value);
// text[index], or undefined. The character at index 0 or -1 of a content also has the part's
// members.
Value CharacterAt(Meter& meter, const Value& text, int64_t index);
// len(); fails for values without a length.
size_t Length(Meter& meter, const Value& value);

}  // namespace weft::chat::jinja
