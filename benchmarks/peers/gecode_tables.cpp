// Tables propagated by Gecode: reads int64 numbers from standard input, prints a line of JSON.
//
// Numbers: variables, their sizes; tables, and of each arity, rows, scope, and the rows one after the other; how many
// variables are bounded afterwards, and pairs of variable and largest value. Seconds: tuple sets made (a set for each run of
// tables with the same rows is not shared), constraints posted and propagated, and propagated again after the bounds.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <vector>

#include <gecode/int.hh>

using namespace Gecode;

struct Model : public Space {
    IntVarArray variables;
    explicit Model(const std::vector<int64_t> &sizes) : variables(*this, (int)sizes.size()) {
        for (size_t v = 0; v < sizes.size(); v++) variables[(int)v] = IntVar(*this, 0, (int)sizes[v] - 1);
    }
    Model(Model &other) : Space(other) { variables.update(*this, other.variables); }
    Space *copy() override { return new Model(*this); }
};

static int64_t number() {
    int64_t found = 0;
    if (std::fread(&found, sizeof found, 1, stdin) != 1) std::abort();
    return found;
}

static double seconds() { return (double)std::clock() / CLOCKS_PER_SEC; }

static void print_sizes(const char *name, Model &model, bool failed) {
    std::printf("\"%s\": [", name);
    for (int v = 0; !failed && v < model.variables.size(); v++)
        std::printf("%s%u", v ? ", " : "", model.variables[v].size());
    std::printf("]");
}

int main() {
    std::vector<int64_t> sizes(number());
    for (auto &size : sizes) size = number();
    Model model(sizes);
    double building = 0, posting = 0;
    for (int64_t left = number(); left > 0; left--) {
        int64_t arity = number(), rows = number();
        IntVarArgs scope((int)arity);
        for (int i = 0; i < arity; i++) scope[i] = model.variables[(int)number()];
        std::vector<int64_t> cells((size_t)(arity * rows));
        if (std::fread(cells.data(), 8, cells.size(), stdin) != cells.size()) std::abort();
        double begin = seconds();
        TupleSet tuples((int)arity);
        IntArgs row((int)arity);
        for (int64_t r = 0; r < rows; r++) {
            for (int i = 0; i < arity; i++) row[i] = (int)cells[(size_t)(r * arity + i)];
            tuples.add(row);
        }
        tuples.finalize();
        double middle = seconds();
        extensional(model, scope, tuples);
        building += middle - begin;
        posting += seconds() - middle;
    }
    double begin = seconds();
    bool failed = model.status() == SS_FAILED;
    posting += seconds() - begin;
    std::printf("{\"building\": %.6f, \"posting\": %.6f, ", building, posting);
    print_sizes("first", model, failed);
    begin = seconds();
    for (int64_t left = number(); left > 0; left--) {
        int v = (int)number(), most = (int)number();
        if (!failed) rel(model, model.variables[v], IRT_LQ, most);
    }
    failed = failed || model.status() == SS_FAILED;
    std::printf(", \"again\": %.6f, ", seconds() - begin);
    print_sizes("second", model, failed);
    std::printf("}\n");
    return 0;
}
