// Images of three dimensions, copied into another order.

// x[batch, channels, *spatial] with any strides in memory, padded with zeros and sorted by remainders of a step, becomes
// [channels, *step, batch, *rooms], whose pixel i of remainder r is pixel step * i + r - padding of x. The planes of a
// channel and a remainder begin `pitch` apart, with zeros between them.
struct Images {
    int64_t batch, channels, pitch, spatial[3], strides[5], step[3], padding[3], rooms[3];
};

// Copy a line of pixels, `step` apart. Lines are short: no call, and four at once.
template <class Real>
inline void copy_line(Real* to, const Real* from, int64_t number, int64_t step) {
    int64_t k = 0;
    if (step == 1)
        for (; k + 4 <= number; k += 4) std::memcpy(to + k, from + k, 4 * sizeof(Real));
    for (; k < number; ++k) to[k] = from[k * step];
}

template <class Real>
void arrange(Real* to, const Real* x, const Images& p) {
    const int64_t plane_size = p.rooms[1] * p.rooms[2], remainders = p.step[0] * p.step[1] * p.step[2];
    int64_t first[3], last[3];  // pixels that are not padding
    std::fill(to, to + p.channels * remainders * p.pitch, Real(0));
    for (int64_t channel = 0; channel < p.channels; ++channel)
        for (int64_t r = 0; r < remainders; ++r) {
            const int64_t skipped[3] = {p.padding[0] - r / (p.step[1] * p.step[2]),
                                        p.padding[1] - r / p.step[2] % p.step[1], p.padding[2] - r % p.step[2]};
            for (int axis = 0; axis < 3; ++axis) {
                const int64_t step = p.step[axis];
                first[axis] = std::max<int64_t>(0, (skipped[axis] + step - 1) / step);
                last[axis] = std::min(p.rooms[axis], (p.spatial[axis] + skipped[axis] + step - 1) / step);
            }
            Real* at = to + (channel * remainders + r) * p.pitch;
            for (int64_t image = 0; image < p.batch; ++image, at += p.rooms[0] * plane_size)
                for (int64_t i = first[0]; i < last[0]; ++i)
                    for (int64_t j = first[1]; j < last[1]; ++j)
                        copy_line(at + i * plane_size + j * p.rooms[2] + first[2],
                                  x + image * p.strides[0] + channel * p.strides[1] +
                                      (i * p.step[0] - skipped[0]) * p.strides[2] +
                                      (j * p.step[1] - skipped[1]) * p.strides[3] +
                                      (first[2] * p.step[2] - skipped[2]) * p.strides[4],
                                  last[2] - first[2], p.step[2] * p.strides[4]);
        }
}
