# The base of the images in the tests: a Debian made by debootstrap, in place of the official python and postgres images.
FROM scratch
ADD rootfs.tar /
CMD ["/bin/bash"]
