from torch.autograd import function as function
