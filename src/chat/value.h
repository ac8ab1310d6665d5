// The values that a template computes with. They behave as Python's do in jinja2: numbers, texts,
// lists, tuples, dicts, and Undefined for what is missing.
//
// Lists and dicts never change once made (jinja2's immutable sandbox, as chat templates are run
// in, forbids it, too), so that values are shared freely and never form a ring. The one thing that
// changes is a namespace; the rendering owns it.
// Every value with a body is charged to the rendering's Meter from the moment it is made.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "chat/meter.h"
#include "chat/text.h"

namespace weft::chat::jinja {

class Value;
struct MacroBody;
class Scope;

struct Undefined {
    std::string_view name;  // of what is missing, for messages; lives in the syntax tree
};
struct None {};

struct DictData;
// A message's content serves templates that take a string and those that take a list of parts, so
// it is both (MakeContent): a text whose walk gives one part, or a list that prints as the texts of
// its parts do. What type it says it has is the form that the client gave.
struct TextData {
    Text text;
    Charge charge;
    bool content = false;
    std::shared_ptr<const DictData> part{};  // content[0]: a character that has the part's members
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
    std::vector<Entry> entries;  // in the order they were put in; keys are apart
    int depth = 1;
    Charge charge;
    bool part = false;  // of a content: prints as its text
};
struct Space {  // namespace(...)
    std::vector<std::pair<std::string, Value>> entries;
    Charge charge;
};
struct Macro {
    const MacroBody* body;
    std::weak_ptr<Scope> scope;  // where it was defined; a macro does not outlive it
};
struct Loop;    // the variable `loop` of a for statement
struct Method;  // a method of a value, not called yet, or a function

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

    // Precondition of each: the kind.
    std::string_view undefined_name() const { return std::get<Undefined>(data_).name; }
    int64_t integer() const;  // bool and int
    double number() const;    // bool, int and float
    const Text& text() const { return std::get<5>(data_)->text; }
    bool IsContent() const;
    bool IsPart() const;  // of a content
    // The part that content[0] stands for, or undefined.
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
    // How deep lists and dicts are nested in it: 0 for what is neither.
    int depth() const;
    // "string", "list", "undefined": for messages.
    std::string_view type_name() const;

  private:
    Data data_;
};

struct Loop {
    std::shared_ptr<const ListData> items;
    size_t at;
    int nesting;  // 1: not inside another for
};

struct Method {
    Value self;             // undefined for a function
    std::string_view name;  // lives in the syntax tree or for ever
};

// Builds a text, charged as it grows.
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

// Builds a list, charged as it grows.
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
    // The last of two values for a key wins. Keys are texts, numbers, bools or none.
    void Set(const Value& key, Value value);
    // The same where the key is known to be a new one.
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
// A text of the template's own, charged to nobody.
Value MakeConstant(std::string bytes);
// A message's content, of texts: one that was given as a string, or those of the parts of a list.
Value MakeContent(Meter& meter, std::string_view text, uint32_t source);
Value MakeContent(Meter& meter, const std::vector<std::string_view>& parts, uint32_t source);
Value MakePair(Meter& meter, Value first, Value second);
Value MakeMethod(Value self, std::string_view name);

// == as Python has it; any two values can be compared.
bool Equal(Meter& meter, const Value& a, const Value& b);
// <: numbers with numbers, texts with texts, lists with lists; others fail.
bool Less(Meter& meter, const Value& a, const Value& b);
// `needle in place`.
bool Contains(Meter& meter, const Value& place, const Value& needle);
// The value for a key, or null.
const Value* Lookup(Meter& meter, const Value& dict, std::string_view key);
const Value* Lookup(Meter& meter, const Value& dict, const Value& key);
// The values that a for statement takes in turn: the items of a list, the keys of a dict, the part
// of a content, the characters of any other text. Undefined has none.
std::shared_ptr<const ListData> Iterate(Meter& meter, const Value& value);
// text[index], or undefined; of a content, index 0 also has the part's members.
Value CharacterAt(Meter& meter, const Value& text, int64_t index);
// len(): fails for what has none.
size_t Length(Meter& meter, const Value& value);

}  // namespace weft::chat::jinja
